// The small layers' loops for each set of instructions of this machine, and the rotary embeddings,
// compared with their definitions in fp64.
#include "engine/model/cpu/loops/vector_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "engine/model/cpu/rotary.h"

namespace pagoda {
namespace {

using kernels::cpu::Isa;

std::vector<float> RandomFloats(size_t size, std::mt19937& random, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

class VectorLoopsTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > kernels::cpu::BestIsa()) GTEST_SKIP() << "not on this machine";
  }
  const VectorLoops& loops() const { return VectorLoopsFor(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Isas, VectorLoopsTest,
                         testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& isa) { return std::string(IsaName(isa.param)); });

// Around the width of registers, and of several.
const uint64_t kCounts[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 130, 1024};

TEST_P(VectorLoopsTest, RmsNormDividesByTheRootMeanSquare) {
  std::mt19937 random(1);
  for (const uint64_t count : kCounts) {
    const std::vector<float> input = RandomFloats(count, random, 3.0f);
    const std::vector<float> weights = RandomFloats(count, random);
    double squares = 0;
    for (const float value : input) squares += double{value} * value;
    const double root = std::sqrt(squares / static_cast<double>(count) + 0.25);
    std::vector<float> output(count);
    loops().rms_norm(input.data(), weights.data(), count, 0.25f, output.data());
    std::vector<float> in_place = input;
    loops().rms_norm(in_place.data(), weights.data(), count, 0.25f, in_place.data());
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_NEAR(output[i], input[i] / root * weights[i], 1e-5) << count;
    }
    EXPECT_EQ(in_place, output);
  }
}

TEST_P(VectorLoopsTest, RotateTurnsEachPairByItsAngle) {
  std::mt19937 random(2);
  for (const uint64_t half : {1u, 4u, 5u, 16u, 32u, 48u, 64u, 128u}) {
    const std::vector<float> before = RandomFloats(2 * half, random);
    const std::vector<float> angles = RandomFloats(half, random, 3.0f);
    std::vector<float> cosines, sines;
    for (const float angle : angles) {
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    std::vector<float> after = before;
    loops().rotate(after.data(), cosines.data(), sines.data(), half);
    for (uint64_t i = 0; i < half; ++i) {
      const double cosine = std::cos(double{angles[i]});
      const double sine = std::sin(double{angles[i]});
      ASSERT_NEAR(after[i], before[i] * cosine - before[half + i] * sine, 1e-6);
      ASSERT_NEAR(after[half + i], before[half + i] * cosine + before[i] * sine, 1e-6);
    }
  }
}

TEST_P(VectorLoopsTest, RotateNeighboursTurnsEachPairByItsAngle) {
  std::mt19937 random(4);
  for (const uint64_t half : {1u, 3u, 4u, 16u, 17u, 32u}) {
    const std::vector<float> before = RandomFloats(2 * half, random);
    const std::vector<float> angles = RandomFloats(half, random, 3.0f);
    std::vector<float> cosines, sines;
    for (const float angle : angles) {
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    std::vector<float> after = before;
    loops().rotate_neighbours(after.data(), cosines.data(), sines.data(), half);
    for (uint64_t i = 0; i < half; ++i) {
      const double cosine = std::cos(double{angles[i]});
      const double sine = std::sin(double{angles[i]});
      ASSERT_NEAR(after[2 * i], before[2 * i] * cosine - before[2 * i + 1] * sine, 1e-6);
      ASSERT_NEAR(after[2 * i + 1], before[2 * i + 1] * cosine + before[2 * i] * sine, 1e-6);
    }
  }
}

TEST_P(VectorLoopsTest, LayerNormSubtractsTheMean) {
  std::mt19937 random(5);
  for (const uint64_t count : kCounts) {
    std::vector<float> input = RandomFloats(count, random, 3.0f);
    for (float& value : input) value += 20.0f;  // A mean that matters.
    const std::vector<float> weights = RandomFloats(count, random);
    const std::vector<float> bias = RandomFloats(count, random);
    double mean = 0, variance = 0;
    for (const float value : input) mean += value / static_cast<double>(count);
    for (const float value : input) {
      variance += (value - mean) * (value - mean) / static_cast<double>(count);
    }
    std::vector<float> output(count);
    loops().layer_norm(input.data(), weights.data(), bias.data(), count, 0.25f, output.data());
    std::vector<float> in_place = input;
    loops().layer_norm(in_place.data(), weights.data(), bias.data(), count, 0.25f, in_place.data());
    for (uint64_t i = 0; i < count; ++i) {
      const double expected = (input[i] - mean) / std::sqrt(variance + 0.25) * weights[i] + bias[i];
      ASSERT_NEAR(output[i], expected, 2e-5) << count;
    }
    EXPECT_EQ(in_place, output);
  }
}

// From far below to far above the range of exp, and in fine steps around 0.
std::vector<float> Sweep() {
  std::vector<float> values = {-1e30f, -200.0f, 200.0f, 1e30f, 0.0f, -0.0f};
  for (float x = -120.0f; x < 120.0f; x += 0.37f) values.push_back(x);
  for (float x = -1.0f; x < 1.0f; x += 0.0031f) values.push_back(x);
  return values;
}

TEST_P(VectorLoopsTest, GatesAreWithinAFewRoundings) {
  const std::vector<float> gate = Sweep();
  const std::vector<float> up(gate.size(), 3.0f);
  std::vector<float> silu(gate.size()), gelu(gate.size());
  loops().gate_silu(gate.data(), up.data(), gate.size(), silu.data());
  loops().gate_gelu_tanh(gate.data(), up.data(), gate.size(), gelu.data());
  const double root = std::sqrt(2 / std::numbers::pi);
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    const double expected_silu = 3 * x / (1 + std::exp(-x));
    ASSERT_NEAR(silu[i], expected_silu, 1e-6 * std::abs(expected_silu) + 1e-6) << x;
    const double expected_gelu = 3 * 0.5 * x * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
    // Between -5 and -10, the sum 1 + tanh cancels in the definition, but not in the loop.
    ASSERT_NEAR(gelu[i], expected_gelu, 2e-6 * std::abs(expected_gelu) + 2e-6) << x;
  }
}

TEST_P(VectorLoopsTest, TheClampedGateIsGptOss) {
  const std::vector<float> gate = Sweep();
  std::vector<float> up(gate.rbegin(), gate.rend());
  std::vector<float> output(gate.size());
  loops().gate_clamped_silu(gate.data(), up.data(), gate.size(), 1.702f, 7.0f, output.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = std::min<double>(gate[i], 7);
    const double u = std::clamp<double>(up[i], -7, 7);
    const double expected = (u + 1) * g / (1 + std::exp(-double{1.702f} * g));
    ASSERT_NEAR(output[i], expected, 2e-6 * std::abs(expected) + 2e-6) << gate[i] << " " << up[i];
  }
}

TEST_P(VectorLoopsTest, GeluIsTheGateWithoutUp) {
  std::vector<float> values = Sweep();
  const std::vector<float> ones(values.size(), 1.0f);
  std::vector<float> expected(values.size());
  loops().gate_gelu_tanh(values.data(), ones.data(), values.size(), expected.data());
  loops().gelu_tanh(values.size(), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], 1e-6f * std::abs(expected[i])) << i;
  }
}

TEST_P(VectorLoopsTest, SoftCapIsTheTangentsHyperbola) {
  std::vector<float> values = Sweep();
  const std::vector<float> before = values;
  loops().soft_cap(30.0f, values.size(), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], 30 * std::tanh(double{before[i]} / 30), 2e-5) << before[i];
  }
}

TEST_P(VectorLoopsTest, NotANumberStaysSo) {
  std::vector<float> gate(40, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> up(40, 1.0f);
  std::vector<float> output(40, 0.0f);
  loops().gate_silu(gate.data(), up.data(), 40, output.data());
  for (const float value : output) EXPECT_TRUE(std::isnan(value));
  loops().gate_gelu_tanh(gate.data(), up.data(), 40, output.data());
  for (const float value : output) EXPECT_TRUE(std::isnan(value));
  loops().gate_clamped_silu(gate.data(), up.data(), 40, 1.7f, 7.0f, output.data());
  for (const float value : output) EXPECT_TRUE(std::isnan(value));
  loops().soft_cap(30.0f, 40, gate.data());
  for (const float value : gate) EXPECT_TRUE(std::isnan(value));
}

TEST_P(VectorLoopsTest, SumsAndFactorsAreExact) {
  std::mt19937 random(3);
  for (const uint64_t count : kCounts) {
    const std::vector<float> a = RandomFloats(count, random);
    const std::vector<float> b = RandomFloats(count, random);
    std::vector<float> sum = a, biased(count), scaled = a, weighted = a;
    loops().add_scaled(0.3f, b.data(), count, weighted.data());
    loops().add(b.data(), count, sum.data());
    loops().add_bias(a.data(), b.data(), count, biased.data());
    loops().scale(1.7f, count, scaled.data());
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_EQ(biased[i], a[i] + b[i]);
      ASSERT_EQ(scaled[i], a[i] * 1.7f);
      ASSERT_NEAR(weighted[i], a[i] + 0.3f * b[i], 1e-6);
    }
  }
}

TEST(RotaryTest, AnglesAreThoseOfThePositions) {
  RotaryTable table({.theta = 10000.0f}, 8);
  table.SetPositions(std::vector<int32_t>{0, 5, 1000});
  EXPECT_EQ(table.half_dim(), 4u);
  const int positions[] = {0, 5, 1000};
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 4; ++i) {
      // The angle itself is fp32: a thousand radians are known to 1e-4.
      const double angle = positions[row] * std::pow(10000.0, -2.0 * i / 8);
      EXPECT_NEAR(table.cosines(row)[i], std::cos(angle), 1e-4);
      EXPECT_NEAR(table.sines(row)[i], std::sin(angle), 1e-4);
    }
  }
}

}  // namespace
}  // namespace pagoda
