// Products compared with fp64, for any shape and number of threads. product_types_test.cc has every
// type and every instruction set.
#include "engine/model/cpu/products/matmul.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/model/weights/tensor_rows.h"
#include "kernels/numeric.h"
#include "tests/engine/model/product_reference.h"
#include "tests/engine/model/stored_matrix.h"

namespace pagoda {
namespace {

using kernels::ElementType;

std::vector<ComputeType> Computes() {
  if (!BestInstructions().bfloat16()) return {ComputeType::kAuto, ComputeType::kFloat32};
  return {ComputeType::kAuto, ComputeType::kFloat32, ComputeType::kBFloat16};
}

std::vector<StoredMatrix> One(TensorType type, uint64_t rows, uint64_t cols, std::mt19937& random) {
  std::vector<StoredMatrix> one;
  one.emplace_back(type, rows, cols, random);
  return one;
}

TEST(MatMulTest, EveryNumberOfRows) {
  std::mt19937 random(1);
  for (const ComputeType compute : Computes()) {
    for (const uint64_t rows :
         {1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 65, 100, 129, 256, 257, 300, 600}) {
      const auto parts = One(TensorType::kBFloat16, 130, 64, random);
      ExpectProduct({.parts = parts, .compute = compute, .num_rows = rows, .num_threads = 2},
                    random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Whole groups of 64 outputs.
TEST(MatMulTest, FewRowsTimesWholeGroups) {
  std::mt19937 random(6);
  for (const ComputeType compute : Computes()) {
    for (uint64_t rows = 1; rows <= 18; ++rows) {
      for (const uint64_t outputs : {64, 192, 1024}) {
        const auto parts = One(TensorType::kBFloat16, outputs, 32 * (1 + random() % 9), random);
        ExpectProduct({.parts = parts,
                       .compute = compute,
                       .num_rows = rows,
                       .num_threads = static_cast<uint32_t>(1 + random() % 3)},
                      random);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(MatMulTest, EveryShapeOfWeights) {
  std::mt19937 random(2);
  for (const ComputeType compute : Computes()) {
    for (const uint64_t outputs : {1, 5, 63, 64, 65, 200, 1100}) {
      for (const uint64_t inputs : {1, 7, 32, 61, 128, 250}) {
        const auto parts = One(TensorType::kFloat32, outputs, inputs, random);
        ExpectProduct({.parts = parts,
                       .compute = compute,
                       .num_rows = 1 + random() % 20,
                       .num_threads = static_cast<uint32_t>(1 + random() % 3)},
                      random);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(MatMulTest, MatricesOfAnyTypeOneAboveTheOtherWithABias) {
  std::mt19937 random(3);
  std::vector<StoredMatrix> parts;
  parts.emplace_back(TensorType::kFloat16, 70, 96, random);
  parts.emplace_back(TensorType::kQ8_0, 33, 96, random);
  parts.emplace_back(TensorType::kBFloat16, 1, 96, random);
  parts.emplace_back(TensorType::kFloat32, 150, 96, random);
  std::vector<float> bias;
  for (int i = 0; i < 70 + 33 + 1 + 150; ++i) bias.push_back(static_cast<float>(i) * 0.25f);
  for (const ComputeType compute : Computes()) {
    for (const uint64_t rows : {1, 5, 40}) {
      ExpectProduct(
          {.parts = parts, .bias = bias, .compute = compute, .num_rows = rows, .num_threads = 3},
          random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(MatMulTest, NoThreadChangesABit) {
  std::mt19937 random(4);
  for (const TensorType type : {TensorType::kBFloat16, TensorType::kFloat16, TensorType::kQ8_0}) {
    const StoredMatrix matrix(type, 1500, 320, random);
    const TensorInfo info = matrix.info();
    for (const ComputeType compute : Computes()) {
      for (const uint64_t rows : {1, 4, 16, 70}) {
        GuardedRows input(rows, 320, random);
        std::vector<float> before;
        for (const uint32_t num_threads : {1u, 2u, 3u, 7u}) {
          kernels::cpu::ThreadPool threads(num_threads);
          MatMul matmul({.threads = &threads, .isa = kernels::cpu::BestIsa()});
          const auto weights = matmul.Load({&info, 1}, {}, compute);
          GuardedRows output(rows, 1500);
          ASSERT_TRUE(matmul.Multiply(*weights, input.view(), output.view()).ok());
          if (num_threads > 1) {
            EXPECT_EQ(output.numbers(), before) << num_threads << " threads";
          }
          before = output.numbers();
        }
      }
    }
  }
}

// Rows of one matrix in any order: every other one, and with gaps of different lengths.
TEST(MatMulTest, RowsThatLieApart) {
  std::mt19937 random(8);
  std::vector<std::vector<uint64_t>> orders(4);
  for (uint64_t r = 0; r < 20; ++r) orders[0].push_back(2 * r + 1);
  for (uint64_t r = 0; r < 20; ++r) orders[0].push_back(2 * r);
  orders[1] = {0, 1, 2, 4, 5, 7, 10, 13, 16, 17, 18, 39};
  orders[2] = {3, 3, 3, 2, 1, 0};
  for (uint64_t r = 0; r < 40; ++r) orders[3].push_back(random() % 40);
  for (const TensorType type : {TensorType::kBFloat16, TensorType::kQ4_K}) {
    const StoredMatrix matrix(type, 40, 256, random);
    kernels::cpu::ThreadPool threads(2);
    MatMul matmul({.threads = &threads, .isa = kernels::cpu::BestIsa()});
    const TensorInfo whole = matrix.info();
    const auto together = matmul.Load({&whole, 1}, {}, ComputeType::kAuto);
    for (const std::vector<uint64_t>& order : orders) {
      std::vector<TensorInfo> rows;
      for (const uint64_t row : order) rows.push_back(RowsOf(whole, row, 1));
      const auto apart = matmul.Load(rows, {}, ComputeType::kAuto);
      ASSERT_EQ(apart->outputs(), order.size());
      EXPECT_EQ(apart->bytes(), order.size() * whole.bytes.size() / 40);
      for (const uint64_t num_rows : {1, 3}) {
        GuardedRows input(num_rows, 256, random);
        GuardedRows output(num_rows, order.size()), expected(num_rows, 40);
        ASSERT_TRUE(matmul.Multiply(*apart, input.view(), output.view()).ok());
        ASSERT_TRUE(matmul.Multiply(*together, input.view(), expected.view()).ok());
        for (uint64_t m = 0; m < num_rows; ++m) {
          for (uint64_t o = 0; o < order.size(); ++o) {
            ASSERT_EQ(output.at(m, o), expected.at(m, order[o])) << o;
          }
        }
      }
    }
  }
}

// Experts of different shapes and numbers of rows, two of them with the same input.
TEST(MatMulTest, EachOfManyProductsHasItsOwnBits) {
  std::mt19937 random(7);
  for (const ComputeType compute : Computes()) {
    kernels::cpu::ThreadPool threads(2);
    MatMul matmul({.threads = &threads, .isa = kernels::cpu::BestIsa()});
    std::vector<std::unique_ptr<SlicedMatrix>> weights;
    std::vector<StoredMatrix> matrices;
    for (const uint64_t outputs : {64, 700, 3, 130}) {
      matrices.emplace_back(TensorType::kBFloat16, outputs, 96, random);
      const TensorInfo info = matrices.back().info();
      weights.push_back(matmul.Load({&info, 1}, {}, compute));
    }
    GuardedRows shared(9, 96, random), single(1, 96, random), many(300, 96, random);
    GuardedRows* const inputs[] = {&shared, &single, &many, &shared};
    std::vector<GuardedRows> alone, together;
    for (size_t i = 0; i < weights.size(); ++i) {
      alone.emplace_back(inputs[i]->view().rows, weights[i]->outputs());
      together.emplace_back(inputs[i]->view().rows, weights[i]->outputs());
    }
    std::vector<ProductCall> calls;
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_TRUE(matmul.Multiply(*weights[i], inputs[i]->view(), alone[i].view()).ok());
      calls.push_back({weights[i].get(), inputs[i]->view(), together[i].view()});
    }
    ASSERT_TRUE(matmul.MultiplyEach(calls).ok());
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(together[i].numbers(), alone[i].numbers()) << i;
    }
    EXPECT_TRUE(matmul.MultiplyEach({}).ok());
  }
}

// Loading reads no weight, and products read those of their own matrix only: the memory of the
// other experts of a mixture cannot be read here.
TEST(MatMulTest, ReadsOnlyTheMatricesThatItMultiplies) {
  std::mt19937 random(9);
  for (const TensorType type : {TensorType::kBFloat16, TensorType::kFloat16, TensorType::kQ4_K}) {
    kernels::cpu::ThreadPool threads(2);
    MatMul matmul({.threads = &threads, .isa = kernels::cpu::BestIsa()});
    std::vector<StoredMatrix> experts;
    std::vector<std::unique_ptr<SlicedMatrix>> weights;
    for (uint64_t e = 0; e < 6; ++e) experts.emplace_back(type, 64, 256, random);
    for (const StoredMatrix& expert : experts) expert.Forbid();
    for (const StoredMatrix& expert : experts) {
      const TensorInfo info = expert.info();
      weights.push_back(matmul.Load({&info, 1}, {}, ComputeType::kAuto));
    }
    const StoredMatrix chosen(type, 64, 256, random);
    const TensorInfo info = chosen.info();
    weights.push_back(matmul.Load({&info, 1}, {}, ComputeType::kAuto));
    for (const uint64_t rows : {1, 40}) {
      GuardedRows input(rows, 256, random), output(rows, 64);
      EXPECT_TRUE(matmul.MultiplyEach({{weights.back().get(), input.view(), output.view()}}).ok());
    }
  }
}

TEST(MatMulTest, RowsAreRoundedUpToFewNumbers) {
  int different = 0;
  for (uint64_t rows = 1; rows <= MatMul::kMostRows; ++rows) {
    EXPECT_GE(MatMul::PaddedRows(rows), rows);
    EXPECT_LE(MatMul::PaddedRows(rows), MatMul::kMostRows);
    different += rows == 1 || MatMul::PaddedRows(rows) != MatMul::PaddedRows(rows - 1);
  }
  EXPECT_EQ(different, 22);
}

TEST(ReadRowsTest, GivesTheRowsInBothTypes) {
  std::mt19937 random(5);
  for (const TensorType type :
       {TensorType::kFloat32, TensorType::kFloat16, TensorType::kBFloat16, TensorType::kQ8_0}) {
    const StoredMatrix matrix(type, 9, 608, random);
    std::vector<float> floats(3 * 608);
    std::vector<kernels::BFloat16> halves(3 * 608);
    ReadRows(matrix.info(), 4, 3, ElementType::kFloat32,
             reinterpret_cast<std::byte*>(floats.data()));
    ReadRows(matrix.info(), 4, 3, ElementType::kBFloat16,
             reinterpret_cast<std::byte*>(halves.data()));
    for (uint64_t i = 0; i < floats.size(); ++i) {
      const float expected = matrix.at(4 + i / 608, i % 608);
      ASSERT_EQ(floats[i], expected);
      ASSERT_EQ(kernels::ToFloat(halves[i]), kernels::ToFloat(kernels::ToBFloat16(expected)));
    }
  }
}

}  // namespace
}  // namespace pagoda
