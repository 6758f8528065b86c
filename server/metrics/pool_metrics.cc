#include "server/metrics/pool_metrics.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "server/calls/metric_family.h"

namespace pagoda::server {

std::vector<prometheus::MetricFamily> CollectPoolMetrics(const PoolSet& pools,
                                                         const CacheInfo& info) {
  auto bytes =
      GaugeFamily("pagoda_pool_bytes", "Bytes of a tier's pools in host memory, by page size.");
  for (size_t t = 0; t < pools.num_tiers(); ++t) {
    const Tier tier(t);
    const std::array<uint64_t, kNumMemoryPages> by_pages = pools.BytesByPages(tier);
    if (std::all_of(by_pages.begin(), by_pages.end(), [](uint64_t one) { return one == 0; })) {
      continue;
    }
    for (size_t p = 0; p < by_pages.size(); ++p) {
      AddSample(bytes,
                {{"tier", info.TierName(tier)},
                 {"pages", std::string(PagesName(static_cast<MemoryPages>(p)))}},
                AsDouble(by_pages[p]));
    }
  }
  return {std::move(bytes)};
}

}  // namespace pagoda::server
