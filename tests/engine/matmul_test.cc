// Products compared with fp64, for any shape, type and number of threads.
#include "engine/model/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/model/tensor_rows.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

using kernels::ElementType;

bool HasBFloat16() { return kernels::cpu::BestIsa() == kernels::cpu::Isa::kAvx512Bf16; }

// A matrix whose bytes begin at an odd address, and its numbers.
class StoredMatrix {
 public:
  StoredMatrix(TensorType type, uint64_t rows, uint64_t cols, std::mt19937& random)
      : type_(type), rows_(rows), cols_(cols) {
    std::normal_distribution<float> normal;
    for (uint64_t i = 0; i < rows * cols; ++i) Store(normal(random), random);
  }

  TensorInfo info() const {
    return {
        .type = type_, .shape = {rows_, cols_}, .bytes = {bytes_.data() + 1, bytes_.size() - 1}};
  }
  float at(uint64_t row, uint64_t col) const { return values_[row * cols_ + col]; }

 private:
  template <class T>
  void Append(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }

  void Store(float value, std::mt19937& random) {
    switch (type_) {
      case TensorType::kFloat32:
        Append(value);
        values_.push_back(value);
        break;
      case TensorType::kFloat16:
        Append(kernels::ToHalf(value));
        values_.push_back(kernels::ToFloat(kernels::ToHalf(value)));
        break;
      case TensorType::kBFloat16:
        Append(kernels::ToBFloat16(value));
        values_.push_back(kernels::ToFloat(kernels::ToBFloat16(value)));
        break;
      case TensorType::kQ8_0: {
        constexpr float kScale = 0.015625f;
        if (values_.size() % kQ8_0BlockElements == 0) Append(kernels::ToHalf(kScale));
        const auto integer = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
        Append(integer);
        values_.push_back(kScale * static_cast<float>(integer));
        break;
      }
      default:
        FAIL() << "no stored matrix of this type";
    }
  }

  TensorType type_;
  uint64_t rows_;
  uint64_t cols_;
  std::vector<std::byte> bytes_ = {std::byte{0}};
  std::vector<float> values_;
};

// Rows of activations with gaps between them, and guards.
class Rows {
 public:
  static constexpr uint64_t kGap = 3;
  static constexpr float kGuard = 12345.0f;

  Rows(uint64_t rows, uint64_t cols)
      : numbers_((rows + 1) * (cols + kGap), kGuard), rows_(rows), cols_(cols) {}
  Rows(uint64_t rows, uint64_t cols, std::mt19937& random) : Rows(rows, cols) {
    std::normal_distribution<float> normal;
    for (uint64_t r = 0; r < rows; ++r) {
      for (uint64_t c = 0; c < cols; ++c) at(r, c) = normal(random);
    }
  }

  float& at(uint64_t row, uint64_t col) { return numbers_[row * (cols_ + kGap) + col]; }
  RowsView view() {
    return {.data = numbers_.data(), .stride = cols_ + kGap, .rows = rows_, .cols = cols_};
  }
  bool guarded() {
    for (uint64_t r = 0; r <= rows_; ++r) {
      for (uint64_t c = r == rows_ ? 0 : cols_; c < cols_ + kGap; ++c) {
        if (at(r, c) != kGuard) return false;
      }
    }
    return true;
  }
  const std::vector<float>& numbers() const { return numbers_; }

 private:
  std::vector<float> numbers_;
  uint64_t rows_;
  uint64_t cols_;
};

float Rounded(float value, ElementType type) {
  return type == ElementType::kBFloat16 ? kernels::ToFloat(kernels::ToBFloat16(value)) : value;
}

// Multiplies, and compares with sums in fp64 of the factors as they are rounded.
void ExpectProduct(const std::vector<StoredMatrix>& parts, const std::vector<float>& bias,
                   uint64_t num_rows, ElementType type, uint32_t num_threads,
                   std::mt19937& random) {
  kernels::cpu::ThreadPool threads(num_threads);
  MatMul matmul({.threads = &threads, .isa = kernels::cpu::BestIsa()});
  std::vector<TensorInfo> infos;
  uint64_t outputs = 0;
  for (const StoredMatrix& part : parts) {
    infos.push_back(part.info());
    outputs += part.info().shape[0];
  }
  const auto weights = matmul.Load(infos, bias, type);
  ASSERT_TRUE(weights.ok()) << weights.status();
  const uint64_t inputs = (*weights)->inputs();
  ASSERT_EQ((*weights)->outputs(), outputs);
  Rows input(num_rows, inputs, random);
  Rows output(num_rows, outputs);
  const absl::Status status = matmul.Multiply(**weights, input.view(), output.view());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(output.guarded()) << "it wrote outside of its rows";
  uint64_t column = 0;
  for (const StoredMatrix& part : parts) {
    for (uint64_t n = 0; n < part.info().shape[0]; ++n, ++column) {
      for (uint64_t m = 0; m < num_rows; ++m) {
        double sum = bias.empty() ? 0 : bias[column], length = 0;
        for (uint64_t k = 0; k < inputs; ++k) {
          const double term = double{Rounded(input.at(m, k), type)} * Rounded(part.at(n, k), type);
          sum += term;
          length += term * term;
        }
        ASSERT_NEAR(output.at(m, column), sum, 1e-5 * (1 + std::sqrt(length)))
            << "row " << m << " of " << num_rows << ", output " << column << " of " << outputs
            << ", " << inputs << " inputs";
      }
    }
  }
}

std::vector<ElementType> Types() {
  if (!HasBFloat16()) return {ElementType::kFloat32};
  return {ElementType::kFloat32, ElementType::kBFloat16};
}

TEST(MatMulTest, EveryNumberOfRows) {
  std::mt19937 random(1);
  for (const ElementType type : Types()) {
    for (const uint64_t rows :
         {1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 65, 100, 129, 256, 257, 300, 600}) {
      ExpectProduct({{TensorType::kBFloat16, 130, 64, random}}, {}, rows, type, 2, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Whole groups of 64 outputs, for few_rows.h.
TEST(MatMulTest, FewRowsTimesWholeGroups) {
  std::mt19937 random(6);
  for (const ElementType type : Types()) {
    for (uint64_t rows = 1; rows <= 18; ++rows) {
      for (const uint64_t outputs : {64, 192, 1024}) {
        ExpectProduct({{TensorType::kBFloat16, outputs, 32 * (1 + random() % 9), random}}, {}, rows,
                      type, 1 + random() % 3, random);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(MatMulTest, EveryShapeOfWeights) {
  std::mt19937 random(2);
  for (const ElementType type : Types()) {
    for (const uint64_t outputs : {1, 5, 63, 64, 65, 200, 1100}) {
      for (const uint64_t inputs : {1, 7, 32, 61, 128, 250}) {
        ExpectProduct({{TensorType::kFloat32, outputs, inputs, random}}, {}, 1 + random() % 20,
                      type, 1 + random() % 3, random);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(MatMulTest, MatricesOfAnyTypeOneAboveTheOtherWithABias) {
  std::mt19937 random(3);
  const std::vector<StoredMatrix> parts = {{TensorType::kFloat16, 70, 96, random},
                                           {TensorType::kQ8_0, 33, 96, random},
                                           {TensorType::kBFloat16, 1, 96, random},
                                           {TensorType::kFloat32, 150, 96, random}};
  std::vector<float> bias;
  for (int i = 0; i < 70 + 33 + 1 + 150; ++i) bias.push_back(static_cast<float>(i) * 0.25f);
  for (const ElementType type : Types()) {
    for (const uint64_t rows : {1, 5, 40}) {
      ExpectProduct(parts, bias, rows, type, 3, random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(MatMulTest, NoThreadChangesABit) {
  std::mt19937 random(4);
  const StoredMatrix matrix(TensorType::kBFloat16, 1500, 320, random);
  const TensorInfo info = matrix.info();
  for (const ElementType type : Types()) {
    for (const uint64_t rows : {1, 4, 16, 70}) {
      Rows input(rows, 320, random);
      std::vector<float> before;
      for (const uint32_t num_threads : {1u, 2u, 3u, 7u}) {
        kernels::cpu::ThreadPool threads(num_threads);
        MatMul matmul({.threads = &threads, .isa = kernels::cpu::BestIsa()});
        const auto weights = matmul.Load({&info, 1}, {}, type);
        ASSERT_TRUE(weights.ok());
        Rows output(rows, 1500);
        ASSERT_TRUE(matmul.Multiply(**weights, input.view(), output.view()).ok());
        if (num_threads > 1) {
          EXPECT_EQ(output.numbers(), before) << num_threads << " threads";
        }
        before = output.numbers();
      }
    }
  }
}

// Experts of different shapes and numbers of rows, two of them with the same input.
TEST(MatMulTest, EachOfManyProductsHasItsOwnBits) {
  std::mt19937 random(7);
  for (const ElementType type : Types()) {
    kernels::cpu::ThreadPool threads(2);
    MatMul matmul({.threads = &threads, .isa = kernels::cpu::BestIsa()});
    std::vector<std::unique_ptr<SlicedMatrix>> weights;
    std::vector<StoredMatrix> matrices;
    for (const uint64_t outputs : {64, 700, 3, 130}) {
      matrices.emplace_back(TensorType::kBFloat16, outputs, 96, random);
      const TensorInfo info = matrices.back().info();
      weights.push_back(*matmul.Load({&info, 1}, {}, type));
    }
    Rows shared(9, 96, random), single(1, 96, random), many(300, 96, random);
    Rows* const inputs[] = {&shared, &single, &many, &shared};
    std::vector<Rows> alone, together;
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
      ASSERT_EQ(kernels::ToFloat(halves[i]), Rounded(expected, ElementType::kBFloat16));
    }
  }
}

}  // namespace
}  // namespace pagoda
