#include "server/metrics/gpu_metrics.h"

#include <utility>

#include "server/metrics/metric_family.h"

namespace pagoda::server {

std::vector<prometheus::MetricFamily> CollectGpuReport(const GpuSelfTestReport& report) {
  auto outcomes = GaugeFamily(
      "pagoda_engine_gpu_kernels",
      "What the self-test has found of each family of a GPU's kernels; 1 where the engine runs it "
      "(outcome runs), else 0.");
  auto seconds = GaugeFamily("pagoda_engine_gpu_kernel_seconds",
                             "How long a run of those took that the self-test has timed.");
  // With nothing left the engine runs on the host.
  const bool on_gpu = report.Check().ok();
  for (const GpuKernelResult& result : report.results) {
    const MetricLabels labels = {{"part", result.part}, {"family", result.family}};
    MetricLabels with_outcome = labels;
    with_outcome.push_back({"outcome", GpuOutcomeName(result.outcome)});
    AddSample(outcomes, std::move(with_outcome),
              on_gpu && result.needed && result.outcome == GpuOutcome::kRuns ? 1 : 0);
    if (result.seconds > 0) AddSample(seconds, labels, result.seconds);
  }
  return {std::move(outcomes), std::move(seconds)};
}

}  // namespace pagoda::server
