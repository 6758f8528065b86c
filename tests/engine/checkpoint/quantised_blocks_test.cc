// ggml's quantised types, compared with the numbers of the PyPI package gguf
// (tests/golden/make_quantised.py).
#include "engine/checkpoint/files/quantised_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/checkpoint/gguf/gguf.h"
#include "engine/model/weights/tensor_rows.h"
#include "kernels/numeric.h"
#include "tests/engine/fixtures/golden.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;

class QuantisedBlocksTest : public testing::TestWithParam<TensorType> {
 protected:
  QuantisedBlocksTest()
      : file_(*GgufFile::Open(GoldenDir("quantised") + "/blocks.gguf")),
        name_(TensorTypeName(GetParam())),
        tensor_(file_.tensors().at(name_)),
        expected_(ToFloats(file_.tensors().at(name_ + ".fp32"))) {}

  const GgufFile file_;
  const std::string name_;
  const TensorInfo tensor_;
  const std::vector<float> expected_;
};

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(QuantisedBlocksTest, HasTheNumbersOfGgufToTheBit) {
  EXPECT_EQ(tensor_.type, GetParam());
  ASSERT_THAT(tensor_.shape, ElementsAre(3, 2, 512));
  EXPECT_TRUE(SameBits(ToFloats(tensor_), expected_));
}

TEST_P(QuantisedBlocksTest, APartIsAMatrixOfItsOwn) {
  for (uint64_t part = 0; part < 3; ++part) {
    const TensorInfo matrix = PartOf(tensor_, part);
    ASSERT_THAT(matrix.shape, ElementsAre(2, 512));
    const absl::Span<const float> expected =
        absl::MakeConstSpan(expected_).subspan(part * 1024, 1024);
    EXPECT_TRUE(SameBits(ToFloats(matrix), expected));
    EXPECT_TRUE(SameBits(ToFloats(RowsOf(matrix, 1, 1)), expected.subspan(512)));
    EXPECT_TRUE(RowsOf(matrix, 2, 0).bytes.empty());
  }
}

TEST_P(QuantisedBlocksTest, ReadRowsConvertsWhatToFloatsGives) {
  // At an odd address.
  std::vector<std::byte> copy(tensor_.bytes.size() + 1);
  std::memcpy(copy.data() + 1, tensor_.bytes.data(), tensor_.bytes.size());
  TensorInfo matrix = PartOf(tensor_, 2);
  matrix.bytes = {copy.data() + 1 + 2 * matrix.bytes.size(), matrix.bytes.size()};
  std::vector<float> floats(512);
  std::vector<kernels::BFloat16> halves(512);
  ReadRows(matrix, 1, 1, kernels::ElementType::kFloat32,
           reinterpret_cast<std::byte*>(floats.data()));
  ReadRows(matrix, 1, 1, kernels::ElementType::kBFloat16,
           reinterpret_cast<std::byte*>(halves.data()));
  const absl::Span<const float> expected = absl::MakeConstSpan(expected_).subspan(2560);
  EXPECT_TRUE(SameBits(floats, expected));
  for (size_t i = 0; i < 512; ++i) {
    ASSERT_EQ(kernels::ToFloat(halves[i]), kernels::ToFloat(kernels::ToBFloat16(expected[i]))) << i;
  }
}

TEST_P(QuantisedBlocksTest, RowsAreWholeBlocks) {
  const BlockLayout layout = LayoutOf(GetParam());
  EXPECT_EQ(TensorBytes(GetParam(), {7, layout.elements}), 7 * layout.bytes);
  EXPECT_EQ(TensorBytes(GetParam(), {7, layout.elements + 16}), std::nullopt);
  EXPECT_EQ(TensorBytes(GetParam(), {}), std::nullopt);
  EXPECT_EQ(TensorBytes(GetParam(), {uint64_t{1} << 41, uint64_t{1} << 23}), std::nullopt);
}

std::vector<TensorType> QuantisedTypes() {
  std::vector<TensorType> types;
  for (const TensorType type : kTensorTypes) {
    if (IsQuantised(type)) types.push_back(type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Types, QuantisedBlocksTest, testing::ValuesIn(QuantisedTypes()),
                         [](const auto& test) { return std::string(TensorTypeName(test.param)); });

TEST(TensorTypeTest, EveryTypeHasItsOwnName) {
  for (const TensorType type : kTensorTypes) EXPECT_EQ(TensorTypeOf(TensorTypeName(type)), type);
  EXPECT_EQ(TensorTypeOf("Q9_K"), std::nullopt);
}

}  // namespace
}  // namespace pagoda
