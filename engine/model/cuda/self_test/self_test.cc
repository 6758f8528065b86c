#include "engine/model/cuda/self_test/self_test.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/cuda/self_test/self_test_attention.h"
#include "engine/model/cuda/self_test/self_test_cache.h"
#include "engine/model/cuda/self_test/self_test_draws.h"
#include "engine/model/cuda/self_test/self_test_fused.h"
#include "engine/model/cuda/self_test/self_test_graphs.h"
#include "engine/model/cuda/self_test/self_test_layers.h"
#include "engine/model/cuda/self_test/self_test_model_layers.h"
#include "engine/model/cuda/self_test/self_test_products.h"

namespace pagoda::cuda {
namespace {

// Derives the item's outcome from the state of the bed.
void Judge(const TestBed& bed, const Measured& measured, GpuKernelResult& result) {
  if (!bed.status().ok()) {
    result.outcome =
        absl::IsFailedPrecondition(bed.status()) ? GpuOutcome::kUnsupported : GpuOutcome::kFailed;
    result.why = std::string(bed.status().message());
    return;
  }
  result.error = measured.error;
  result.seconds = measured.seconds;
  // This comparison also fails for NaN.
  if (measured.error <= result.tolerance) {
    result.outcome = GpuOutcome::kRight;
    return;
  }
  result.outcome = GpuOutcome::kWrong;
  result.why = absl::StrCat("its error is ", measured.error, ", above ", result.tolerance);
}

}  // namespace

GpuSelfTestReport RunSelfTest(ComputeDevice& device, DeviceProducts& products,
                              const GpuSelfTestRequest& request, const GpuTestObserver& observer,
                              const TestedKernels& kernels) {
  std::vector<SelfTestItem> items;
  for (std::vector<SelfTestItem>& some :
       std::array{AttentionItems(request, kernels), CacheItems(request, kernels),
                  ProductItems(request, products), LayerItems(request, kernels),
                  ModelLayerItems(request, kernels), FusedItems(request, kernels),
                  FusedProductItems(request, products, kernels), DrawItems(kernels),
                  GraphItems(request, products)}) {
    std::move(some.begin(), some.end(), std::back_inserter(items));
  }
  GpuSelfTestReport report{.device = device.description(), .results = {}};
  absl::Status lost;
  for (const SelfTestItem& item : items) {
    const auto known = std::find_if(request.known.begin(), request.known.end(), [&](const auto& k) {
      return k.part == item.part && k.family == item.family;
    });
    if (known != request.known.end()) {
      report.results.push_back(*known);
      continue;
    }
    GpuKernelResult& result =
        report.results.emplace_back(GpuKernelResult{.part = item.part,
                                                    .family = item.family,
                                                    .needed = item.needed,
                                                    .tolerance = item.tolerance,
                                                    .why = ""});
    if (!lost.ok()) {
      result.outcome = GpuOutcome::kFailed;
      result.why = absl::StrCat("not run, because the device was lost before: ", lost.message());
      continue;
    }
    observer(result);
    TestBed bed(&device);
    const Measured measured = item.test(bed);
    // Waits after a failure too, so that started work ends before its memory is freed.
    lost = device.Wait();
    bed.Keep([&] { return lost; });
    Judge(bed, measured, result);
    observer(result);
  }
  report.Choose();
  return report;
}

}  // namespace pagoda::cuda
