#ifndef PAGODA_SERVER_METRICS_GPU_METRICS_H_
#define PAGODA_SERVER_METRICS_GPU_METRICS_H_

#include <vector>

#include "engine/model/gpu_report.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// What the self-test has found of a GPU's kernels, and which of them the engine runs.
std::vector<prometheus::MetricFamily> CollectGpuReport(const GpuSelfTestReport& report);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_GPU_METRICS_H_
