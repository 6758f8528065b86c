#ifndef PAGODA_SERVER_METRICS_GPU_METRICS_H_
#define PAGODA_SERVER_METRICS_GPU_METRICS_H_

#include <vector>

#include "pagoda/v1/engine_process.pb.h"
#include "prometheus/metric_family.h"

namespace pagoda::server {

// The self-test's results for the GPU kernels, and which kernels the engine runs.
std::vector<prometheus::MetricFamily> CollectGpuReport(const v1::GpuSelfTest& report);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_GPU_METRICS_H_
