// The tiers of a cache, as data. Other code does not know how many there are.
#ifndef PAGODA_MANAGER_WORDS_TIER_SPEC_H_
#define PAGODA_MANAGER_WORDS_TIER_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// A name is 1 to kMaxTierName letters, digits, '-' and '_'.
inline constexpr size_t kMaxTierName = 32;

// One tier of a cache. Its index in the cache's list is its Tier.
struct TierSpec {
  std::string name;  // Unique in the list.
  Medium medium = Medium::kHost;
  // One entry for each of CacheLayout::windows(), or none: no window has blocks here. Only below
  // the first tier can a window have no blocks. There it has SlotsFor() slots for its blocks.
  std::vector<uint32_t> blocks;
  // Admission: the tier takes a victim from above if its priority is at least this. Other victims
  // are dropped. Not used for the first tier.
  Priority min_priority = kDefaultPriority;
  // BlockManager::Maintain offloads victims ahead of need, to keep this share of each window's
  // blocks free in this tier. In thousandths. 0: never.
  uint32_t watermark_permille = 0;
  // For a tier on disk: the write limit in bytes per second, with a burst of one second's worth. 0:
  // no limit.
  uint64_t write_bytes_per_second = 0;

  // The blocks of a window, by its index in CacheLayout::windows().
  uint32_t blocks_in(size_t window_index) const {
    return blocks.empty() ? 0 : blocks[window_index];
  }
};

// Errors: INVALID_ARGUMENT (not a valid tier name).
absl::Status CheckTierName(std::string_view name);
// Whether the list is valid for a cache of `num_windows` windows. Errors: INVALID_ARGUMENT (no
// tiers or more than kMaxTiers; an invalid or repeated name; a wrong number of block counts; a
// window without blocks in the first tier, or with more than kMaxBlocks; a threshold or watermark
// out of range).
absl::Status CheckTiers(absl::Span<const TierSpec> tiers, size_t num_windows);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WORDS_TIER_SPEC_H_
