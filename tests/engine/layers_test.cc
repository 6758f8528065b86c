// The parts of a model by themselves, against their definitions in fp64.
#include "engine/model/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/model/matmul.h"

namespace pagoda {
namespace {

std::vector<float> RandomFloats(size_t size, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(MatMulTest, MultipliesByTheTransposedWeights) {
  std::mt19937 random(1);
  MatMul matmul;
  // The last one is large enough for several threads.
  for (const uint64_t num_rows : {1, 2, 7, 33, 2, 500}) {
    const uint64_t cols = num_rows < 500 ? 5 + random() % 60 : 61;
    const uint64_t rows = num_rows < 500 ? 1 + random() % 70 : 67;
    const Matrix weights{rows, cols, RandomFloats(rows * cols, random)};
    const std::vector<float> input = RandomFloats(num_rows * cols, random);
    std::vector<float> output(num_rows * rows);
    matmul.Multiply(input.data(), num_rows, weights, output.data());
    for (uint64_t m = 0; m < num_rows; ++m) {
      for (uint64_t n = 0; n < rows; ++n) {
        double sum = 0;
        for (uint64_t k = 0; k < cols; ++k) {
          sum += double{input[m * cols + k]} * weights.values[n * cols + k];
        }
        ASSERT_NEAR(output[m * rows + n], sum, 1e-4) << num_rows << "x" << cols << "x" << rows;
      }
    }
  }
}

TEST(RmsNormTest, DividesByTheRootMeanSquare) {
  const std::vector<float> input = {3, 4, 0, 0, 1, 1, 1, 1};
  const std::vector<float> weight = {1, 2, 3, 4};
  std::vector<float> output(8);
  RmsNorm(input.data(), 2, weight, /*eps=*/0.0f, output.data());
  const std::vector<float> expected = {1.2f, 3.2f, 0, 0, 1, 2, 3, 4};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(output[i], expected[i], 1e-6);
}

TEST(SiluMultiplyTest, IsFiniteAtBothEnds) {
  std::vector<float> gate = {-200.0f, -1.0f, 0.0f, 1.0f, 200.0f};
  const std::vector<float> up = {2, 2, 2, 2, 2};
  SiluMultiply(absl::MakeSpan(gate), up);
  const double silu_of_one = 1 / (1 + std::exp(-1.0));
  const std::vector<double> expected = {0, -2 * (1 - silu_of_one), 0, 2 * silu_of_one, 400};
  for (size_t i = 0; i < gate.size(); ++i) EXPECT_NEAR(gate[i], expected[i], 1e-6);
}

TEST(RotaryEmbeddingTest, TurnsEachPairByItsAngle) {
  std::mt19937 random(2);
  constexpr uint32_t kHeadDim = 8;
  constexpr uint32_t kHeads = 3;
  const std::vector<int32_t> positions = {0, 5, 1000};
  const std::vector<float> before = RandomFloats(positions.size() * kHeads * kHeadDim, random);
  std::vector<float> after = before;
  RotaryEmbedding rotary(kHeadDim, 10000.0f);
  rotary.SetPositions(positions);
  rotary.Rotate(after.data(), kHeads);
  for (size_t n = 0; n < positions.size() * kHeads; ++n) {
    for (uint32_t i = 0; i < kHeadDim / 2; ++i) {
      const double angle = positions[n / kHeads] * std::pow(10000.0, -2.0 * i / kHeadDim);
      const size_t first = n * kHeadDim + i;
      const size_t second = first + kHeadDim / 2;
      // The angle itself is fp32: a thousand radians are known to 1e-4.
      const double cosine = std::cos(angle);
      const double sine = std::sin(angle);
      EXPECT_NEAR(after[first], before[first] * cosine - before[second] * sine, 2e-4);
      EXPECT_NEAR(after[second], before[second] * cosine + before[first] * sine, 2e-4);
    }
  }
}

}  // namespace
}  // namespace pagoda
