// Every type of weights by every way to multiply that this machine has.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "tests/engine/model/product_reference.h"
#include "tests/engine/model/stored_matrix.h"

namespace pagoda {
namespace {

using Factors = MatMul::Factors;

uint64_t SomeInputs(TensorType type, std::mt19937& random) {
  const uint64_t block = LayoutOf(type).elements;
  if (block == 1) return 1 + random() % 300;
  return block * (1 + random() % (block == 256 ? 3 : 9));
}

class ProductTypesTest : public testing::TestWithParam<TensorType> {};
INSTANTIATE_TEST_SUITE_P(Types, ProductTypesTest, testing::ValuesIn(kTensorTypes),
                         [](const auto& type) { return std::string(TensorTypeName(type.param)); });

TEST_P(ProductTypesTest, EveryInstructionSet) {
  std::mt19937 random(1);
  for (const ProductInstructions& instructions : AllInstructions()) {
    // The instructions for integers matter only to few rows of quantised types.
    const bool best = instructions.integers == BestInstructions(instructions.isa).integers;
    if (!best && !IsQuantised(GetParam())) continue;
    for (const ComputeType compute :
         {ComputeType::kAuto, ComputeType::kFloat32, ComputeType::kBFloat16}) {
      if (compute == ComputeType::kBFloat16 && !instructions.bfloat16()) continue;
      if (compute != ComputeType::kAuto && !best) continue;
      for (const uint64_t rows : {1, 2, 3, 4, 5, 6, 16, 17, 33}) {
        if (rows > 16 && !best) continue;
        std::vector<StoredMatrix> parts;
        parts.emplace_back(GetParam(), 1 + random() % 70, SomeInputs(GetParam(), random), random);
        ExpectProduct({.parts = parts,
                       .compute = compute,
                       .num_rows = rows,
                       .num_threads = static_cast<uint32_t>(1 + random() % 2),
                       .instructions = instructions},
                      random);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A row's results do not depend on the rows next to it, as long as there are few of them, or as
// long as there are many and tiles multiply them.
TEST_P(ProductTypesTest, NoOtherRowChangesABit) {
  std::mt19937 random(2);
  const uint64_t inputs = 2 * LayoutOf(GetParam()).elements * (IsQuantised(GetParam()) ? 1 : 70);
  const StoredMatrix matrix(GetParam(), 40, inputs, random);
  const TensorInfo info = matrix.info();
  for (const ProductInstructions& instructions : AllInstructions()) {
    kernels::cpu::ThreadPool threads(1);
    MatMul matmul({.threads = &threads, .isa = instructions.isa}, instructions);
    const auto weights = matmul.Load({&info, 1}, {}, ComputeType::kAuto);
    GuardedRows input(40, inputs, random);
    const auto results = [&](uint64_t first, uint64_t count) {
      GuardedRows output(count, 40);
      EXPECT_TRUE(matmul.Multiply(*weights, input.view(first, count), output.view()).ok());
      return output;
    };
    const GuardedRows four = results(0, 4);
    for (uint64_t count = 1; count <= 3; ++count) {
      const GuardedRows some = results(1, count);
      for (uint64_t r = 0; r < count; ++r) {
        for (uint64_t o = 0; o < 40; ++o) ASSERT_EQ(some.at(r, o), four.at(r + 1, o));
      }
    }
    const Factors many = matmul.FactorsOf(GetParam(), ComputeType::kAuto, 40);
    const bool by_tiles = many == Factors::kBFloat16 || many == Factors::kSplit;
    if (instructions.tiles == TileInstructions::kNone || !by_tiles) continue;
    const GuardedRows forty = results(0, 40);
    for (const uint64_t count : {5, 16, 21}) {
      const GuardedRows some = results(7, count);
      for (uint64_t r = 0; r < count; ++r) {
        for (uint64_t o = 0; o < 40; ++o) ASSERT_EQ(some.at(r, o), forty.at(r + 7, o));
      }
    }
  }
}

// An activation that is not finite makes all results of its row NaN or infinite, and no other's.
TEST_P(ProductTypesTest, WhatIsNotFiniteStaysInItsRow) {
  std::mt19937 random(3);
  const uint64_t inputs = LayoutOf(GetParam()).elements * (IsQuantised(GetParam()) ? 1 : 64);
  const StoredMatrix matrix(GetParam(), 33, inputs, random);
  const TensorInfo info = matrix.info();
  for (const ProductInstructions& instructions : AllInstructions()) {
    kernels::cpu::ThreadPool threads(1);
    MatMul matmul({.threads = &threads, .isa = instructions.isa}, instructions);
    const auto weights = matmul.Load({&info, 1}, {}, ComputeType::kAuto);
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const uint64_t rows : {3, 20}) {
        GuardedRows input(rows, inputs, random), output(rows, 33);
        input.at(1, inputs / 2) = value;
        ASSERT_TRUE(matmul.Multiply(*weights, input.view(), output.view()).ok());
        for (uint64_t r = 0; r < rows; ++r) {
          int finite = 0;
          for (uint64_t o = 0; o < 33; ++o) finite += std::isfinite(output.at(r, o));
          // A weight of 0 times infinity is NaN.
          ASSERT_EQ(finite, r == 1 ? 0 : 33) << "row " << r << " of " << rows;
        }
      }
    }
  }
}

TEST(ProductTest, TheFactorsFollowTheTypeAndTheProcessor) {
  kernels::cpu::ThreadPool threads(1);
  for (const ProductInstructions& instructions : AllInstructions()) {
    const MatMul matmul({.threads = &threads, .isa = instructions.isa}, instructions);
    const auto factors = [&](TensorType type, uint64_t rows) {
      return matmul.FactorsOf(type, ComputeType::kAuto, rows);
    };
    const Factors bf16 = instructions.bfloat16() ? Factors::kBFloat16 : Factors::kFloat32;
    const bool tiles = instructions.tiles == TileInstructions::kAmx;
    EXPECT_EQ(factors(TensorType::kQ4_K, 1), Factors::kInteger);
    EXPECT_EQ(factors(TensorType::kQ4_K, 100), bf16);
    EXPECT_EQ(factors(TensorType::kBFloat16, 1), bf16);
    EXPECT_EQ(factors(TensorType::kBFloat16, 100), bf16);
    EXPECT_EQ(factors(TensorType::kFloat16, 1), Factors::kFloat32);
    EXPECT_EQ(factors(TensorType::kFloat16, 100), tiles ? Factors::kSplit : Factors::kFloat32);
    EXPECT_EQ(factors(TensorType::kFloat32, 1), Factors::kFloat32);
    EXPECT_EQ(factors(TensorType::kFloat32, 100), Factors::kFloat32);
    for (const TensorType type : kTensorTypes) {
      EXPECT_EQ(matmul.FactorsOf(type, ComputeType::kFloat32, 1), Factors::kFloat32);
      EXPECT_EQ(matmul.FactorsOf(type, ComputeType::kFloat32, 100), Factors::kFloat32);
    }
  }
}

}  // namespace
}  // namespace pagoda
