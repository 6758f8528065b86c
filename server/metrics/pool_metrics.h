// The memory of the pools as Prometheus families.
#ifndef PAGODA_SERVER_METRICS_POOL_METRICS_H_
#define PAGODA_SERVER_METRICS_POOL_METRICS_H_

#include <vector>

#include "manager/api/cache_client.h"
#include "pools/pool.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// server/METRICS.md lists the families. A tier that is not in host memory has no samples.
std::vector<prometheus::MetricFamily> CollectPoolMetrics(const PoolSet& pools,
                                                         const CacheInfo& info);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_POOL_METRICS_H_
