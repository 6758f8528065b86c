#include "engine/model/cuda/self_test/self_test_layers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/model/cuda/self_test/self_test_rows.h"
#include "kernels/numeric.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;

// For sums in fp32 over rounded factors, whose products are exact in fp32.
constexpr double kProductTolerance = 1e-4;

// Returns the numbers in the type, and rounds `numbers` in place to it.
template <class T>
std::vector<T> RoundedTo(std::vector<float>& numbers) {
  std::vector<T> rounded;
  for (float& number : numbers) {
    rounded.push_back(kernels::FromFloat<T>(number));
    number = kernels::ToFloat(rounded.back());
  }
  return rounded;
}

enum class Adds : uint8_t { kNothing, kBias };

double ErrorOfProduct(TestBed& bed, DeviceProducts& products, ElementType type, uint64_t rows,
                      uint64_t inputs, uint64_t outputs, Adds adds) {
  TestNumbers numbers(static_cast<uint32_t>(rows));
  std::vector<float> input = numbers.Many(rows * inputs, 1);
  std::vector<float> weights = numbers.Many(outputs * inputs, 1);
  DeviceProduct product = {.type = type,
                           .rows = rows,
                           .inputs = inputs,
                           .outputs = outputs,
                           .input_stride = inputs,
                           .output_stride = outputs};
  kernels::VisitElementType(type, [&]<class T>() {
    product.input = bed.Bring(RoundedTo<T>(input));
    product.weights = bed.Bring(RoundedTo<T>(weights));
  });
  const std::vector<float> bias = numbers.Many(outputs, 2);
  if (adds == Adds::kBias) product.bias = bed.Bring(bias);
  std::vector<double> expected(rows * outputs);
  for (uint64_t i = 0; i < expected.size(); ++i) {
    if (adds == Adds::kBias) expected[i] = bias[i % outputs];
    for (uint64_t k = 0; k < inputs; ++k) {
      expected[i] += double{input[i / outputs * inputs + k]} * weights[i % outputs * inputs + k];
    }
  }
  product.output = bed.Bring(std::vector<float>(expected.size(), std::nanf("")));
  bed.Keep([&] { return products.Multiply(product, bed.stream()); });
  return RowError(bed.Take(product.output, expected.size()), expected, outputs);
}

double ErrorOfEmbedding(TestBed& bed, const TestedKernels& kernels, ElementType type,
                        uint64_t cols) {
  constexpr float kScale = 1.5f;
  const std::vector<uint32_t> tokens = {7, 0, 3, 7, 1};
  std::vector<float> table = TestNumbers(3).Many(8 * cols, 2);
  const void* device_table = nullptr;
  kernels::VisitElementType(type,
                            [&]<class T>() { device_table = bed.Bring(RoundedTo<T>(table)); });
  const uint32_t* const device_tokens = bed.Bring(tokens);
  const RowsView output =
      BringRows(bed, std::vector<float>(tokens.size() * cols, std::nanf("")), cols);
  bed.Run("embedding", [&] {
    return kernels.embed(type, device_table, device_tokens, kScale, output, bed.stream());
  });
  std::vector<double> expected;
  for (const uint32_t token : tokens) {
    for (uint64_t c = 0; c < cols; ++c) expected.push_back(kScale * table[token * cols + c]);
  }
  return NumberError(TakeRowsOf(bed, output), expected);
}

double ErrorOfNorm(TestBed& bed, const TestedKernels& kernels, float eps, uint64_t cols) {
  TestNumbers numbers(4);
  const std::vector<float> input = numbers.Many(kTestRows * cols, 3);
  const std::vector<float> weights = numbers.Many(cols, 2);
  const RowsView rows = BringRows(bed, input, cols);
  const float* const device_weights = bed.Bring(weights);
  bed.Run("norm", [&] { return kernels.rms_norm(device_weights, eps, rows, rows, bed.stream()); });
  std::vector<double> expected = Doubles(input);
  for (uint64_t r = 0; r < kTestRows; ++r) {
    Norm(absl::MakeSpan(expected).subspan(r * cols, cols), weights, eps);
  }
  return NumberError(TakeRowsOf(bed, rows), expected);
}

double Activated(GateKind kind, double x) {
  if (kind == GateKind::kSilu) return x / (1 + std::exp(-x));
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}

double ErrorOfGate(TestBed& bed, const TestedKernels& kernels, GateKind kind, uint64_t cols) {
  const std::vector<float> input = TestNumbers(6).Many(kTestRows * 2 * cols, 8);
  const RowsView gate_up = BringRows(bed, input, 2 * cols);
  const RowsView output = BringRows(bed, std::vector<float>(kTestRows * cols, std::nanf("")), cols);
  bed.Run("gate", [&] { return kernels.gate({.kind = kind}, gate_up, output, bed.stream()); });
  std::vector<double> expected;
  for (uint64_t r = 0; r < kTestRows; ++r) {
    for (uint64_t c = 0; c < cols; ++c) {
      const uint64_t i = r * 2 * cols + c;
      expected.push_back(Activated(kind, input[i]) * input[i + cols]);
    }
  }
  return NumberError(TakeRowsOf(bed, output), expected);
}

// Sums, biases, chosen rows and soft caps, one after the other.
double ErrorOfRows(TestBed& bed, const TestedKernels& kernels, uint64_t cols) {
  constexpr float kCap = 2.5f;
  TestNumbers numbers(7);
  const std::vector<float> addend = numbers.Many(kTestRows * cols, 3);
  const std::vector<float> sum = numbers.Many(kTestRows * cols, 3);
  const std::vector<float> bias = numbers.Many(cols, 3);
  const std::vector<uint32_t> chosen = {4, 0, 2};
  const RowsView device_addend = BringRows(bed, addend, cols);
  const RowsView device_sum = BringRows(bed, sum, cols);
  const float* const device_bias = bed.Bring(bias);
  const RowsView output =
      BringRows(bed, std::vector<float>(chosen.size() * cols, std::nanf("")), cols);
  bed.Run("addition", [&] { return kernels.add(device_addend, device_sum, bed.stream()); });
  bed.Run("bias", [&] { return kernels.add_bias(device_bias, device_sum, bed.stream()); });
  bed.Run("choice of rows",
          [&] { return kernels.take_rows(chosen.data(), device_sum, output, bed.stream()); });
  bed.Run("soft cap", [&] { return kernels.soft_cap(kCap, output, bed.stream()); });
  std::vector<double> expected;
  for (const uint32_t row : chosen) {
    for (uint64_t c = 0; c < cols; ++c) {
      const uint64_t i = row * cols + c;
      expected.push_back(kCap * std::tanh((double{addend[i]} + sum[i] + bias[c]) / kCap));
    }
  }
  return NumberError(TakeRowsOf(bed, output), expected);
}

// Rounds to 16 bits and back, and compares the bits.
double ErrorOfRounding(TestBed& bed, const TestedKernels& kernels, ElementType type,
                       uint64_t cols) {
  std::vector<float> numbers = TestNumbers(8).Many(kTestRows * cols, 3);
  const RowsView input = BringRows(bed, numbers, cols);
  const RowsView output = BringRows(bed, std::vector<float>(numbers.size(), std::nanf("")), cols);
  const RowsView rounded = EmptyRows(bed, kTestRows, cols).As(type);
  bed.Run("rounding", [&] { return kernels.round(type, input, rounded.data, bed.stream()); });
  bed.Run("widening", [&] { return kernels.widen(rounded, output, bed.stream()); });
  kernels::VisitElementType(type, [&]<class T>() { RoundedTo<T>(numbers); });
  return NumberError(TakeRowsOf(bed, output), Doubles(numbers));
}

std::vector<std::pair<ElementType, const char*>> FactorTypes(ComputeType compute) {
  const std::vector<std::pair<ElementType, const char*>> all = {
      {ElementType::kBFloat16, "products_bf16"},
      {ElementType::kFloat16, "products_fp16"},
      {ElementType::kFloat32, "products_fp32"}};
  switch (compute) {
    case ComputeType::kAuto:
      break;
    case ComputeType::kFloat32:
      return {all[2]};
    case ComputeType::kBFloat16:
      return {all[0]};
  }
  return all;
}

}  // namespace

std::vector<SelfTestItem> ProductItems(const GpuSelfTestRequest& request,
                                       DeviceProducts& products) {
  std::vector<SelfTestItem> items;
  for (const auto& [type, part] : FactorTypes(request.compute)) {
    items.push_back(
        {.part = part,
         .family = kFamilyCublasLt,
         .tolerance = kProductTolerance,
         .test = [&products, type = type](TestBed& bed) {
           // A decode step, and a chunk of a prompt.
           return Measured{
               .error = std::max(ErrorOfProduct(bed, products, type, 1, 128, 96, Adds::kBias),
                                 ErrorOfProduct(bed, products, type, 40, 192, 64, Adds::kNothing))};
         }});
  }
  return items;
}

std::vector<SelfTestItem> LayerItems(const GpuSelfTestRequest& request,
                                     const TestedKernels& kernels) {
  std::vector<SelfTestItem> items;
  const auto add = [&](const char* part, double tolerance, auto error_of) {
    items.push_back(RowsItem(part, tolerance, std::move(error_of)));
  };
  add("embedding", kLayerTolerance, [&kernels](TestBed& bed, uint64_t cols) {
    double worst = 0;
    for (const ElementType type :
         {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
      worst = std::max(worst, ErrorOfEmbedding(bed, kernels, type, cols));
    }
    return worst;
  });
  add("norm", kLayerTolerance, [&request, &kernels](TestBed& bed, uint64_t cols) {
    return ErrorOfNorm(bed, kernels, request.config.rms_norm_eps, cols);
  });
  add("gate", kLayerTolerance, [&kernels](TestBed& bed, uint64_t cols) {
    return std::max(ErrorOfGate(bed, kernels, GateKind::kSilu, cols),
                    ErrorOfGate(bed, kernels, GateKind::kGeluTanh, cols));
  });
  add("rows", kLayerTolerance,
      [&kernels](TestBed& bed, uint64_t cols) { return ErrorOfRows(bed, kernels, cols); });
  add("rounding", /*tolerance=*/0, [&kernels](TestBed& bed, uint64_t cols) {
    return std::max(ErrorOfRounding(bed, kernels, ElementType::kFloat16, cols),
                    ErrorOfRounding(bed, kernels, ElementType::kBFloat16, cols));
  });
  return items;
}

}  // namespace pagoda::cuda
