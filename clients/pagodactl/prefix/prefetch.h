// The work of `pagodactl prefetch`, and its report as text. It uses no terminal.
#ifndef PAGODA_CLIENTS_PAGODACTL_PREFIX_PREFETCH_H_
#define PAGODA_CLIENTS_PAGODACTL_PREFIX_PREFETCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "manager/api/cache_client.h"
#include "manager/api/operation.h"

namespace pagoda {

struct PrefetchReport {
  PrefetchTarget target = PrefetchTarget::kPrimary;
  absl::Duration deadline = absl::InfiniteDuration();
  // Over all requests: the sums of the blocks, the most tokens, and the tickets of the last one.
  PrefetchedPrefix sum;
  absl::Duration elapsed;
  std::optional<MatchedPrefix> end;  // The state at the end, if the cache has a disk tier.
};

// The name of the cache's disk tier, if it has one.
std::optional<std::string> DiskName(const CacheInfo& cache);

// Onboards a prefix and waits for it. The daemon fetches a long prefix in parts. This function
// therefore repeats the request until all of the prefix has arrived, a round brings nothing more,
// or the prefetch's deadline is over.
// Errors: those of PrefetchPrefix; WAIT_TIMEOUT if nothing arrived for `patience`.
absl::StatusOr<PrefetchReport> RunPrefetch(CacheClient& client, const PrefetchPrefix& prefetch,
                                           absl::Duration patience);
// Requests the prefetch once and does not wait.
absl::StatusOr<PrefetchReport> OrderPrefetch(CacheClient& client, const PrefetchPrefix& prefetch);

// Texts of a few lines, without a newline at the end.
std::string PrefetchText(const PrefetchReport& report, const CacheInfo& cache);
std::string OrderedPrefetchText(const PrefetchReport& report, const CacheInfo& cache);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODACTL_PREFIX_PREFETCH_H_
