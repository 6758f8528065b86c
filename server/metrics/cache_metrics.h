// The core's numbers as Prometheus families.
#ifndef PAGODA_SERVER_METRICS_CACHE_METRICS_H_
#define PAGODA_SERVER_METRICS_CACHE_METRICS_H_

#include <vector>

#include "manager/cache_client.h"
#include "manager/stats.h"
#include "manager/tenants.h"
#include "pools/layout.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// What a tenant does and has: by its name, or with all tenants and the default tenant in one sum,
// which has no label `tenant`.
enum class TenantLabels : uint8_t { kNames, kSummed };

struct CacheNumbers {
  const ManagerStats& stats;
  const std::vector<TenantUsage>& uses;
  const CacheInfo& info;
  const CacheLayout& layout;
  const TenantTable& tenants;
};

// README.md has the families.
std::vector<prometheus::MetricFamily> CollectCacheMetrics(const CacheNumbers& numbers,
                                                          TenantLabels labels);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_CACHE_METRICS_H_
