#include "tests/engine/model/product_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/numeric.h"

namespace pagoda {
namespace {

using Factors = MatMul::Factors;

float Rounded(float value) { return kernels::ToFloat(kernels::ToBFloat16(value)); }

void Quantise(float* block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(block[i]));
  const float scale = largest / 127.0f;
  for (int i = 0; i < 32 && largest != 0; ++i) {
    block[i] = scale * std::nearbyint(block[i] * (127.0f / largest));
  }
}

void ExpectPart(const StoredMatrix& part, const float* bias, const GuardedRows& input, uint64_t row,
                Factors factors, const float* results) {
  const auto [outputs, inputs] = std::pair(part.info().shape[0], part.info().shape[1]);
  const std::vector<float> rounded = AsFactors(input, row, inputs, factors);
  for (uint64_t n = 0; n < outputs; ++n) {
    double sum = bias == nullptr ? 0 : bias[n], exact = sum;
    double squares = 0, magnitudes = 0, changes = 0;
    for (uint64_t k = 0; k < inputs; ++k) {
      const double weight = part.at(n, k), activation = input.at(row, k);
      const double factor = factors == Factors::kBFloat16 ? Rounded(part.at(n, k)) : part.at(n, k);
      const double term = factor * double{rounded[k]};
      sum += term;
      squares += term * term;
      magnitudes += std::abs(term);
      exact += weight * activation;
      const double step = factors == Factors::kInteger ? std::abs(rounded[k] - activation) : 0;
      changes += factors == Factors::kBFloat16 ? std::abs(weight * activation) / 127
                                               : std::abs(weight) * step;
    }
    double tolerance = 1e-5 * (1 + std::sqrt(squares));
    if (factors == Factors::kSplit) tolerance += magnitudes * 3 / 131072;
    ASSERT_NEAR(results[n], sum, tolerance)
        << TensorTypeName(part.info().type) << ", row " << row << ", output " << n << " of "
        << outputs << ", " << inputs << " inputs";
    ASSERT_NEAR(results[n], exact, tolerance + changes) << TensorTypeName(part.info().type);
  }
}

}  // namespace

std::vector<float> AsFactors(const GuardedRows& rows, uint64_t row, uint64_t cols,
                             Factors factors) {
  std::vector<float> values(cols);
  for (uint64_t k = 0; k < cols; ++k) {
    values[k] = factors == Factors::kBFloat16 ? Rounded(rows.at(row, k)) : rows.at(row, k);
  }
  if (factors == Factors::kInteger) {
    for (uint64_t k = 0; k < cols; k += 32) Quantise(values.data() + k);
  }
  return values;
}

void ExpectProduct(const ProductCase& product, std::mt19937& random) {
  kernels::cpu::ThreadPool threads(product.num_threads);
  MatMul matmul({.threads = &threads, .isa = product.instructions.isa}, product.instructions);
  std::vector<TensorInfo> infos;
  uint64_t outputs = 0;
  for (const StoredMatrix& part : product.parts) {
    infos.push_back(part.info());
    outputs += part.info().shape[0];
  }
  const auto weights = matmul.Load(infos, product.bias, product.compute);
  ASSERT_EQ(weights->outputs(), outputs);
  GuardedRows input(product.num_rows, weights->inputs(), random);
  GuardedRows output(product.num_rows, outputs);
  const absl::Status status = matmul.Multiply(*weights, input.view(), output.view());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(output.guarded()) << "it wrote outside of its rows";
  SCOPED_TRACE(testing::Message() << product.num_rows << " rows, instructions "
                                  << kernels::cpu::IsaName(product.instructions.isa) << ", "
                                  << static_cast<int>(product.instructions.integers) << ", "
                                  << static_cast<int>(product.instructions.tiles));
  for (uint64_t row = 0; row < product.num_rows; ++row) {
    uint64_t column = 0;
    for (const StoredMatrix& part : product.parts) {
      const Factors factors = matmul.FactorsOf(part.info().type, product.compute, product.num_rows);
      ExpectPart(part, product.bias.empty() ? nullptr : product.bias.data() + column, input, row,
                 factors, &output.at(row, column));
      if (testing::Test::HasFatalFailure()) return;
      column += part.info().shape[0];
    }
  }
}

}  // namespace pagoda
