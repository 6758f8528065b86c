// The statistics of a tier on disk as Prometheus families.
#ifndef PAGODA_SERVER_METRICS_DISK_METRICS_H_
#define PAGODA_SERVER_METRICS_DISK_METRICS_H_

#include <vector>

#include "manager/api/stats.h"
#include "prometheus/metric_family.h"
#include "server/cache/disk_tier.h"

namespace pagoda::server {

// server/METRICS.md lists the families. A window without blocks on disk has no samples.
std::vector<prometheus::MetricFamily> CollectDiskMetrics(const ManagerStats& stats,
                                                         const DiskNumbers& disk);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_DISK_METRICS_H_
