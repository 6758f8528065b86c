#include "server/metrics/gpu_metrics.h"

#include <utility>

#include "server/calls/metric_family.h"

namespace pagoda::server {

std::vector<prometheus::MetricFamily> CollectGpuReport(const v1::GpuSelfTest& report) {
  auto outcomes = GaugeFamily(
      "pagoda_engine_gpu_kernels",
      "The self-test's outcome for each family of GPU kernels: 1 if the engine runs the family "
      "(outcome runs), else 0.");
  auto seconds = GaugeFamily("pagoda_engine_gpu_kernel_seconds",
                             "Duration of a kernel family's run, if the self-test timed it.");
  // If no GPU kernel is left, the engine runs on the host.
  const bool on_gpu = !report.has_problem();
  for (const v1::GpuSelfTest::Kernel& kernel : report.kernels()) {
    const MetricLabels labels = {{"part", kernel.part()}, {"family", kernel.family()}};
    MetricLabels with_outcome = labels;
    with_outcome.push_back({"outcome", kernel.outcome()});
    AddSample(outcomes, std::move(with_outcome),
              on_gpu && kernel.needed() && kernel.outcome() == "runs" ? 1 : 0);
    if (kernel.seconds() > 0) AddSample(seconds, labels, kernel.seconds());
  }
  return {std::move(outcomes), std::move(seconds)};
}

}  // namespace pagoda::server
