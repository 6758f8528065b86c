// The statistics of a cache's core as Prometheus families.
#ifndef PAGODA_SERVER_METRICS_CACHE_METRICS_H_
#define PAGODA_SERVER_METRICS_CACHE_METRICS_H_

#include <vector>

#include "manager/accounts/tenants.h"
#include "manager/api/cache_client.h"
#include "manager/api/stats.h"
#include "pools/layout.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// How a tenant's statistics are labelled: by the tenant's name, or as one sum over all tenants, the
// default tenant included, without the label `tenant`.
enum class TenantLabels : uint8_t { kNames, kSummed };

struct CacheNumbers {
  const ManagerStats& stats;
  const std::vector<TenantUsage>& uses;
  const CacheInfo& info;
  const CacheLayout& layout;
  const TenantTable& tenants;
};

// server/METRICS.md lists the families.
std::vector<prometheus::MetricFamily> CollectCacheMetrics(const CacheNumbers& numbers,
                                                          TenantLabels labels);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_CACHE_METRICS_H_
