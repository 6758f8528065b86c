// How a fetch of a prefix from another machine ended.
#ifndef PAGODA_MANAGER_WORDS_FETCH_OUTCOME_H_
#define PAGODA_MANAGER_WORDS_FETCH_OUTCOME_H_

#include <cstddef>
#include <cstdint>

namespace pagoda {

enum class FetchOutcome : uint8_t {
  kFetched,    // All blocks that the source has from there on are cached now, as far as the first
               // tier can have them.
  kCached,     // The cache has all blocks in memory, or further ones on disk, which are nearer.
  kMissing,    // The source does not have the next block.
  kPartly,     // Some blocks came; the next one was invalid, late, or could not be read.
  kFailed,     // No block came, for one of these reasons.
  kSlower,     // It was not begun: computing the tokens is predicted to be faster.
  kNoRoom,     // The cache, or the tenant's quota, has no room for the blocks.
  kRefused,    // The prompt or the tenant is bad, or too many fetches already wait.
  kCancelled,  // The exchange was stopped.
  kNoSource,   // There is no store, and no source was named.
};
inline constexpr size_t kFetchOutcomes = 10;
const char* FetchOutcomeName(FetchOutcome outcome);  // "fetched"

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_FETCH_OUTCOME_H_
