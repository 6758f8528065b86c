// The products of few rows compared with plain loops in fp64, with each norm before them and each
// end behind them.
#include "engine/model/cuda/kernels/fused_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/numeric.h"
#include "tests/kernels/cuda/device_memory.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementType;
using kernels::cuda::DeviceArray;
using kernels::cuda::FinishDevice;

constexpr uint32_t kMultiprocessors = 2;
constexpr float kUntouched = -77.0f;
constexpr float kEps = 0.25f;

enum class Input : uint8_t { kRounded, kFloats, kRmsNorm, kLayerNorm };

struct ProductCase {
  ElementType type;
  uint64_t rows;
  uint64_t inputs;
  uint64_t outputs;
  Input input;
  ProductEnd end;
  GateKind gate = GateKind::kSilu;
  ElementType output_type = ElementType::kFloat32;
  bool biased = false;
};

// A part of a warp's load, one load of all warps with a rest, and several groups of loads; outputs
// of one tile and of several, also with a rest.
const ProductCase kCases[] = {
    {ElementType::kBFloat16, 1, 64, 40, Input::kRmsNorm, ProductEnd::kStore, {}, {}, true},
    {ElementType::kBFloat16, 8, 200, 13, Input::kRmsNorm, ProductEnd::kStore},
    {ElementType::kFloat16, 5, 2312, 24, Input::kRmsNorm, ProductEnd::kStore},
    {ElementType::kBFloat16, 3, 328, 26, Input::kRmsNorm, ProductEnd::kGate, GateKind::kSilu,
     ElementType::kBFloat16, true},
    {ElementType::kFloat16, 8, 1096, 48, Input::kRmsNorm, ProductEnd::kGate, GateKind::kGeluTanh,
     ElementType::kFloat16},
    {ElementType::kBFloat16, 2, 64, 32, Input::kRounded, ProductEnd::kGate, GateKind::kClampedSilu,
     ElementType::kFloat32, true},
    {ElementType::kBFloat16, 1, 2056, 40, Input::kRounded, ProductEnd::kAdd},
    {ElementType::kFloat16, 8, 8, 19, Input::kRounded, ProductEnd::kAdd, {}, {}, true},
    {ElementType::kBFloat16, 4, 4360, 9, Input::kRounded, ProductEnd::kStore},
    {ElementType::kBFloat16, 7, 136, 24, Input::kFloats, ProductEnd::kAdd},
    {ElementType::kBFloat16,
     3,
     200,
     24,
     Input::kLayerNorm,
     ProductEnd::kActivate,
     {},
     ElementType::kBFloat16,
     true},
    {ElementType::kFloat16, 8, 1032, 16, Input::kLayerNorm, ProductEnd::kStore, {}, {}, true},
};

std::vector<float> Numbers(uint64_t size, float range, std::mt19937& random) {
  std::uniform_real_distribution<float> numbers(-range, range);
  std::vector<float> values(size);
  for (float& value : values) value = numbers(random);
  return values;
}

// The numbers as bytes of the type; they become what the bytes say.
std::vector<std::byte> BytesOf(ElementType type, std::vector<float>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * kernels::ElementBytes(type));
  kernels::VisitElementType(type, [&]<class T>() {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const T element = kernels::FromFloat<T>(numbers[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
      numbers[i] = kernels::ToFloat(element);
    }
  });
  return bytes;
}

double Rounded(ElementType type, double number) {
  std::vector<float> one = {static_cast<float>(number)};
  BytesOf(type, one);
  return one[0];
}

double RoundingOf(ElementType type) {
  if (type == ElementType::kFloat32) return 0;
  return type == ElementType::kFloat16 ? 0x1p-11 : 0x1p-8;
}

double Activated(GateKind kind, double alpha, double x) {
  if (kind == GateKind::kSilu) return x / (1 + std::exp(-x));
  if (kind == GateKind::kClampedSilu) return x / (1 + std::exp(-alpha * x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// The arguments of a case in device memory, and what its rows must become.
class Product {
 public:
  Product(const ProductCase& of, uint32_t seed)
      : of_(of),
        cols_(of.end == ProductEnd::kGate ? of.outputs / 2 : of.outputs),
        random_(seed),
        input_(Numbers(of.rows * InputStride(), 3, random_)),
        weights_(Numbers(of.outputs * of.inputs, 1, random_)),
        bias_(Numbers(of.outputs, 2, random_)),
        norm_(Numbers(of.inputs, 2, random_)),
        norm_bias_(Numbers(of.inputs, 1, random_)),
        output_(of.rows * OutputStride(), kUntouched),
        device_input_(BytesOf(input_type(), input_)),
        device_weights_(BytesOf(of.type, weights_)),
        device_bias_(bias_),
        device_norm_(norm_),
        device_norm_bias_(norm_bias_),
        device_output_(BytesOf(of.output_type, output_)) {
    if (of.end != ProductEnd::kAdd) return;
    for (uint64_t r = 0; r < of.rows; ++r) {
      for (uint64_t c = 0; c < cols_; ++c) output_[r * OutputStride() + c] = 0.5f * float(c);
    }
    device_output_.Set(BytesOf(of.output_type, output_));
  }

  FusedProductArgs args() const {
    return {.type = of_.type,
            .weights = device_weights_.data(),
            .bias = of_.biased ? device_bias_.data() : nullptr,
            .inputs = of_.inputs,
            .outputs = of_.outputs,
            .input = {.data = reinterpret_cast<float*>(device_input_.data()),
                      .stride = InputStride(),
                      .rows = of_.rows,
                      .cols = of_.inputs,
                      .type = input_type()},
            .norm = of_.input >= Input::kRmsNorm ? device_norm_.data() : nullptr,
            .norm_bias = of_.input == Input::kLayerNorm ? device_norm_bias_.data() : nullptr,
            .eps = kEps,
            .end = of_.end,
            .gate = {.kind = of_.gate, .alpha = 1.5f, .limit = 2.0f},
            .output = {.data = reinterpret_cast<float*>(device_output_.data()),
                       .stride = OutputStride(),
                       .rows = of_.rows,
                       .cols = cols_,
                       .type = of_.output_type}};
  }

  std::vector<float> Output() const {
    FinishDevice();
    const std::vector<std::byte> bytes = device_output_.Get();
    std::vector<float> numbers(output_.size());
    kernels::VisitElementType(of_.output_type, [&]<class T>() {
      for (size_t i = 0; i < numbers.size(); ++i) {
        T element;
        std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
        numbers[i] = kernels::ToFloat(element);
      }
    });
    return numbers;
  }

  void ExpectOutput() const {
    const std::vector<float> actual = Output();
    for (uint64_t r = 0; r < of_.rows; ++r) {
      const std::vector<double> factors = Factors(r);
      for (uint64_t c = 0; c < OutputStride(); ++c) {
        const float now = actual[r * OutputStride() + c];
        if (c >= cols_) {
          ASSERT_EQ(now, kernels::ToFloat(kernels::FromFloat<kernels::BFloat16>(kUntouched)));
          continue;
        }
        double wanted = 0, uncertain = 0;
        Sum(factors, c, wanted, uncertain);
        if (of_.end == ProductEnd::kAdd) wanted += output_[r * OutputStride() + c];
        if (of_.end == ProductEnd::kActivate) wanted = Activated(GateKind::kGeluTanh, 1, wanted);
        if (of_.end == ProductEnd::kGate) {
          double up = 0, uncertain_up = 0;
          Sum(factors, cols_ + c, up, uncertain_up);
          Gate(wanted, up, uncertain, uncertain_up);
        }
        const double rounding = RoundingOf(of_.output_type) * std::abs(wanted);
        ASSERT_NEAR(now, wanted, rounding + 1.2 * uncertain + 2e-6 * (1 + std::abs(wanted)))
            << "row " << r << ", " << c;
      }
    }
  }

 private:
  ElementType input_type() const {
    return of_.input == Input::kRounded ? of_.type : ElementType::kFloat32;
  }
  uint64_t InputStride() const { return of_.inputs + 8; }
  uint64_t OutputStride() const { return cols_ + 3; }

  // The row's factors, normed and rounded.
  std::vector<double> Factors(uint64_t row) const {
    const auto from = input_.begin() + static_cast<ptrdiff_t>(row * InputStride());
    std::vector<double> factors(from, from + static_cast<ptrdiff_t>(of_.inputs));
    const auto count = static_cast<double>(of_.inputs);
    if (of_.input >= Input::kRmsNorm) {
      double mean = 0, squares = 0;
      if (of_.input == Input::kLayerNorm) {
        for (const double x : factors) mean += x / count;
      }
      for (const double x : factors) squares += (x - mean) * (x - mean);
      for (size_t i = 0; i < factors.size(); ++i) {
        factors[i] = (factors[i] - mean) / std::sqrt(squares / count + kEps) * norm_[i];
        if (of_.input == Input::kLayerNorm) factors[i] += norm_bias_[i];
      }
    }
    for (double& x : factors) x = Rounded(of_.type, x);
    return factors;
  }

  // `uncertain`: sums in fp32; and the last bit of two normed factors that lie in the middle
  // between two numbers of the type.
  void Sum(const std::vector<double>& factors, uint64_t output, double& sum,
           double& uncertain) const {
    sum = of_.biased ? bias_[output] : 0;
    double magnitudes = 0, largest = 0;
    for (size_t i = 0; i < factors.size(); ++i) {
      const double product = factors[i] * weights_[output * of_.inputs + i];
      sum += product;
      magnitudes += std::abs(product);
      largest = std::max(largest, std::abs(product));
    }
    uncertain = 1e-6 * magnitudes;
    if (of_.input >= Input::kRmsNorm) uncertain += 4 * RoundingOf(of_.type) * largest;
  }

  // `gate` becomes the gated number.
  void Gate(double& gate, double up, double& uncertain, double uncertain_up) const {
    if (of_.gate == GateKind::kClampedSilu) {
      gate = std::min(gate, 2.0);
      up = std::clamp(up, -2.0, 2.0) + 1;
    }
    uncertain = 1.2 * uncertain * std::abs(up) + uncertain_up * std::abs(gate);
    gate = Activated(of_.gate, 1.5, gate) * up;
  }

  const ProductCase of_;
  const uint64_t cols_;
  std::mt19937 random_;
  std::vector<float> input_, weights_;
  const std::vector<float> bias_, norm_, norm_bias_;
  std::vector<float> output_;
  const DeviceArray<std::byte> device_input_, device_weights_;
  const DeviceArray<float> device_bias_, device_norm_, device_norm_bias_;
  DeviceArray<std::byte> device_output_;
};

class FusedProductsTest : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, FusedProductsTest, testing::ValuesIn(kCases),
                         [](const auto& tested) {
                           const ProductCase& of = tested.param;
                           return std::to_string(of.rows) + "x" + std::to_string(of.inputs) + "x" +
                                  std::to_string(of.outputs);
                         });

// Also in a grid of few blocks, each of which has several tiles.
TEST_P(FusedProductsTest, ComputesWhatPlainLoopsDo) {
  for (uint32_t schedule = 0; schedule < 2; ++schedule) {
    kernels::cuda::ShuffleSchedule(schedule);
    const Product product(GetParam(), 7);
    ASSERT_TRUE(CanLaunchFusedProduct(product.args()));
    ASSERT_EQ(LaunchFusedProduct(product.args(), kMultiprocessors, nullptr), 0);
    product.ExpectOutput();
  }
  kernels::cuda::ShuffleSchedule(0);
}

// A row has the same bits alone as among others, also next to rows of NaN.
TEST_P(FusedProductsTest, ARowDependsOnItselfOnly) {
  const Product all(GetParam(), 8);
  const Product apart(GetParam(), 8);
  ASSERT_EQ(LaunchFusedProduct(all.args(), kMultiprocessors, nullptr), 0);
  const uint64_t rows = GetParam().rows;
  for (uint64_t r = 0; r < rows; ++r) {
    FusedProductArgs args = apart.args();
    args.input = args.input.Rows(r, 1);
    args.output = args.output.Rows(r, 1);
    ASSERT_EQ(LaunchFusedProduct(args, 3 * kMultiprocessors, nullptr), 0);
  }
  EXPECT_EQ(all.Output(), apart.Output());

  const Product poisoned(GetParam(), 8);
  FusedProductArgs args = poisoned.args();
  if (rows == 1) return;
  std::vector<std::byte> nan(args.inputs * kernels::ElementBytes(args.input.type), std::byte{0xff});
  kernels::cuda::CopyToDevice(args.input.Rows(1, 1).data, nan.data(), nan.size());
  ASSERT_EQ(LaunchFusedProduct(args, kMultiprocessors, nullptr), 0);
  const std::vector<float> expected = all.Output(), actual = poisoned.Output();
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < args.output.cols; ++c) {
      const uint64_t i = r * args.output.stride + c;
      if (r == 1) {
        EXPECT_TRUE(std::isnan(actual[i]) || args.gate.kind == GateKind::kClampedSilu) << c;
      } else {
        ASSERT_EQ(actual[i], expected[i]) << r << ", " << c;
      }
    }
  }
}

TEST(FusedProductsLimitsTest, OtherProductsAreRefused) {
  const Product product({ElementType::kBFloat16, 8, 64, 40, Input::kRmsNorm, ProductEnd::kStore},
                        9);
  const FusedProductArgs good = product.args();
  ASSERT_TRUE(CanLaunchFusedProduct(good));
  const auto refused = [&](auto change) {
    FusedProductArgs args = good;
    change(args);
    return !CanLaunchFusedProduct(args);
  };
  EXPECT_TRUE(refused([](auto& a) { a.input.rows = a.output.rows = kMostFusedRows + 1; }));
  EXPECT_TRUE(refused([](auto& a) { a.input.rows = a.output.rows = 0; }));
  EXPECT_TRUE(refused([](auto& a) { a.type = ElementType::kFloat32; }));
  EXPECT_TRUE(refused([](auto& a) { a.inputs = a.input.cols = 60; }));
  EXPECT_TRUE(refused([](auto& a) { a.input.stride = 70; }));
  EXPECT_TRUE(refused([](auto& a) { ++a.input.data; }));
  EXPECT_TRUE(refused([](auto& a) { ++a.norm; }));
  EXPECT_TRUE(refused([](auto& a) { a.input.type = ElementType::kBFloat16; }));
  EXPECT_TRUE(refused([](auto& a) { a.output.type = ElementType::kBFloat16; }));
  EXPECT_TRUE(refused([](auto& a) {
    a.end = ProductEnd::kGate;
    a.outputs = 41;
  }));
  // Rows that do not fit in shared memory.
  EXPECT_TRUE(refused([](auto& a) { a.inputs = a.input.cols = a.input.stride = 14400; }));
  // About 202 KiB, which only some GPUs have.
  if (kernels::cuda::IsEmulated()) {
    EXPECT_FALSE(refused([](auto& a) {
      a.inputs = a.input.cols = a.input.stride = 14400;
      a.input.rows = a.output.rows = 7;
    }));
  }
  EXPECT_FALSE(refused([](auto& a) {
    a.inputs = a.input.cols = a.input.stride = 1 << 20;
    a.norm = nullptr;
    a.input.type = a.type;
  }));
}

}  // namespace
}  // namespace pagoda::cuda
