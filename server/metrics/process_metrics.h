#ifndef PAGODA_SERVER_METRICS_PROCESS_METRICS_H_
#define PAGODA_SERVER_METRICS_PROCESS_METRICS_H_

#include <vector>

#include "prometheus/metric_family.h"

namespace pagoda::server {

// The standard Prometheus metrics of a process: process_resident_memory_bytes,
// process_cpu_seconds_total, process_open_fds, process_max_fds, process_virtual_memory_bytes,
// process_threads.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_PROCESS_METRICS_H_
