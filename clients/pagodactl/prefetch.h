// What `pagodactl prefetch` does, and how it tells of it. Knows no terminal.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFETCH_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFETCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/cache_client.h"
#include "manager/operation.h"
#include "nlohmann/json.hpp"

namespace pagoda {

struct PrefetchReport {
  PrefetchTarget target = PrefetchTarget::kPrimary;
  absl::Duration deadline = absl::InfiniteDuration();
  uint32_t matched_tokens = 0;  // Cached in whichever tier when it began.
  uint64_t moved_blocks = 0;    // Up between tiers in memory, over all windows.
  uint64_t fetched_blocks = 0;  // Ordered from disk, over all windows.
  absl::Duration elapsed;
  // At its end, where the cache has a tier on disk: see MatchedPrefix.
  uint32_t cached_tokens = 0;
  std::vector<uint32_t> tokens_by_tier;
};

// The cache's tier on disk. None: it has none.
std::optional<std::string> DiskName(const CacheInfo& cache);

// Brings a prefix up, and waits until it is there. The daemon fetches a part of a long prefix at a
// time, so this asks again until all of it came, until a round brings nothing more, or until the
// prefetch's deadline is over, whichever is first.
// Errors: those of PrefetchPrefix; WAIT_TIMEOUT where nothing came for `patience`.
absl::StatusOr<PrefetchReport> RunPrefetch(CacheClient& client, const PrefetchPrefix& prefetch,
                                           absl::Duration patience);
// Orders it once, and waits for nothing.
absl::StatusOr<PrefetchReport> OrderPrefetch(CacheClient& client, const PrefetchPrefix& prefetch);

// A few lines, without a newline at the end.
std::string PrefetchText(const PrefetchReport& report, const CacheInfo& cache);
std::string OrderedPrefetchText(const PrefetchReport& report, const CacheInfo& cache);
nlohmann::ordered_json PrefetchJson(const PrefetchReport& report, const CacheInfo& cache);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFETCH_H_
