#include "engine/model/cuda/self_test/self_test_graphs.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/model/cuda/kernels/row_kernels.h"
#include "engine/model/cuda/self_test/self_test_rows.h"
#include "kernels/numeric.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

constexpr uint64_t kTokens = 4;
constexpr uint64_t kVocabulary = 16;
constexpr uint64_t kColumns = 256;
constexpr float kEps = 1e-6f;

// A small step: the rows of some tokens, an addition to them, their norm, and a product. The tokens
// and the addends are at fixed addresses.
class SmallStep {
 public:
  SmallStep(TestBed& bed, const GpuSelfTestRequest& request, DeviceProducts& products)
      : bed_(bed),
        products_(products),
        type_(request.compute == ComputeType::kFloat32 ? ElementType::kFloat32
                                                       : ElementType::kBFloat16) {
    TestNumbers numbers(25);
    table_ = bed.Bring(numbers.Many(kVocabulary * kColumns, 2));
    tokens_ = bed.Bring(std::vector<uint32_t>(kTokens, 0));
    addends_ = EmptyRows(bed, kTokens, kColumns);
    hidden_ = EmptyRows(bed, kTokens, kColumns);
    norm_ = bed.Bring(numbers.Many(kColumns, 1));
    normed_ = EmptyRows(bed, kTokens, kColumns).As(type_);
    const std::vector<float> weights = numbers.Many(kColumns * kColumns, 1);
    kernels::VisitElementType(type_, [&]<class T>() {
      std::vector<T> rounded;
      for (const float weight : weights) rounded.push_back(kernels::FromFloat<T>(weight));
      weights_ = bed.Bring(rounded);
    });
    output_ = EmptyRows(bed, kTokens, kColumns);
  }

  // Another step: its tokens and addends. The output becomes NaN.
  void Prepare(uint32_t number) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < kTokens; ++i) tokens.push_back((5 * number + 3 * i) % kVocabulary);
    bed_.Overwrite(tokens_, tokens);
    bed_.Overwrite(addends_.data, TestNumbers(26 + number).Many(kTokens * kColumns, 2));
    bed_.Overwrite(output_.data, std::vector<float>(kTokens * kColumns, std::nanf("")));
  }

  absl::Status Launch() {
    const auto stream = bed_.stream();
    absl::Status status = kernels::cuda::StatusOf(
        "embedding", LaunchEmbed(ElementType::kFloat32, table_, tokens_, 1.0f, hidden_, stream));
    const auto run = [&](const char* what, auto launch) {
      if (status.ok()) status = kernels::cuda::StatusOf(what, launch());
    };
    run("addition", [&] { return LaunchAdd(addends_, hidden_, stream); });
    run("norm", [&] { return LaunchRmsNorm(norm_, kEps, hidden_, normed_, stream); });
    if (!status.ok()) return status;
    return products_.Multiply({.type = type_,
                               .rows = kTokens,
                               .inputs = kColumns,
                               .outputs = kColumns,
                               .input = normed_.data,
                               .input_stride = kColumns,
                               .weights = weights_,
                               .output = output_.data,
                               .output_stride = kColumns},
                              stream);
  }

  std::vector<float> Output() { return TakeRowsOf(bed_, output_); }

 private:
  TestBed& bed_;
  DeviceProducts& products_;
  const ElementType type_;
  const float* table_ = nullptr;
  uint32_t* tokens_ = nullptr;
  RowsView addends_;
  RowsView hidden_;
  const float* norm_ = nullptr;
  RowsView normed_;
  const void* weights_ = nullptr;
  RowsView output_;
};

// The number of floats that differ between launches and their graph.
Measured CompareGraph(TestBed& bed, const GpuSelfTestRequest& request, DeviceProducts& products) {
  constexpr uint32_t kSteps = 3;
  SmallStep step(bed, request, products);
  std::vector<std::vector<float>> expected;
  for (uint32_t number = 0; number < kSteps; ++number) {
    step.Prepare(number);
    bed.Keep([&] { return step.Launch(); });
    expected.push_back(step.Output());
  }
  std::unique_ptr<DeviceGraph> graph;
  bed.Keep([&] {
    absl::StatusOr<std::unique_ptr<DeviceGraph>> captured =
        bed.device().Capture([&] { return step.Launch(); });
    if (captured.ok()) graph = *std::move(captured);
    return captured.status();
  });
  Measured measured;
  for (uint32_t number = 0; number < kSteps; ++number) {
    step.Prepare(number);
    bed.Keep([&] { return bed.device().Launch(*graph); });
    const std::vector<float> output = step.Output();
    if (!bed.status().ok()) return measured;
    for (uint64_t i = 0; i < output.size(); ++i) {
      // Also if both are NaN: no step makes one.
      if (!(output[i] == expected[number][i])) ++measured.error;
    }
  }
  measured.seconds = bed.SecondsOf([&] { return bed.device().Launch(*graph); });
  return measured;
}

}  // namespace

std::vector<SelfTestItem> GraphItems(const GpuSelfTestRequest& request, DeviceProducts& products) {
  return {{.part = kStepGraphs,
           .family = "captured",
           .needed = false,
           .tolerance = 0,
           .test = [&request, &products](TestBed& bed) {
             return CompareGraph(bed, request, products);
           }}};
}

}  // namespace pagoda::cuda
