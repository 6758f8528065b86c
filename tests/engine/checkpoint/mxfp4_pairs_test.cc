#include "engine/checkpoint/files/mxfp4_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace pagoda {
namespace {

using testing::HasSubstr;

// OCP's FP4 (E2M1) by its bits.
constexpr float kFp4[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

ByteTensor TensorOf(std::vector<uint64_t> shape, const std::vector<std::byte>& bytes) {
  return {.shape = std::move(shape), .bytes = bytes};
}

std::vector<std::byte> Pattern(uint64_t size, uint32_t step) {
  std::vector<std::byte> bytes(size);
  for (uint64_t i = 0; i < size; ++i) bytes[i] = std::byte(i * step + i / 7);
  return bytes;
}

TEST(Mxfp4PairsTest, GivesTheNumbersOfThePair) {
  constexpr uint64_t kExperts = 2, kRows = 4, kBlocks = 3;
  const std::vector<std::byte> nibbles = Pattern(kExperts * kRows * kBlocks * 16, 37);
  std::vector<std::byte> scales(kExperts * kRows * kBlocks);
  for (uint64_t i = 0; i < scales.size(); ++i) scales[i] = std::byte(120 + i % 9);
  for (const bool interleaved : {false, true}) {
    const std::string name = interleaved ? "m.experts.gate_up_proj" : "m.experts.down_proj";
    const absl::StatusOr<JoinedTensors> joined =
        JoinMxfp4Pairs({{name + "_blocks", TensorOf({kExperts, kRows, kBlocks, 16}, nibbles)},
                        {name + "_scales", TensorOf({kExperts, kRows, kBlocks}, scales)}});
    ASSERT_TRUE(joined.ok()) << joined.status();
    ASSERT_TRUE(joined->tensors.contains(name + ".weight"));
    const TensorInfo& tensor = joined->tensors.at(name + ".weight");
    EXPECT_EQ(tensor.type, TensorType::kMxfp4);
    EXPECT_EQ(tensor.shape, (std::vector<uint64_t>{kExperts, kRows, 32 * kBlocks}));
    const std::vector<float> floats = ToFloats(tensor);
    for (uint64_t e = 0; e < kExperts; ++e) {
      for (uint64_t row = 0; row < kRows; ++row) {
        const uint64_t order[] = {0, 2, 1, 3};  // Brings gate's rows before those of up.
        const uint64_t target = interleaved ? order[row] : row;
        for (uint64_t i = 0; i < 32 * kBlocks; ++i) {
          const uint64_t block = (e * kRows + row) * kBlocks + i / 32;
          const auto pair = static_cast<uint32_t>(nibbles[block * 16 + i % 32 / 2]);
          const float expected = std::ldexp(kFp4[i % 2 == 0 ? pair & 15 : pair >> 4],
                                            static_cast<int>(scales[block]) - 127);
          EXPECT_EQ(floats[(e * kRows + target) * 32 * kBlocks + i], expected);
        }
      }
    }
  }
}

TEST(Mxfp4PairsTest, RefusesShapesThatDoNotMatch) {
  const std::vector<std::byte> nibbles = Pattern(2 * 3 * 16, 5);
  const std::vector<std::byte> scales = Pattern(2 * 3, 5);
  const auto refusal = [&](const std::string& name, std::vector<uint64_t> of_nibbles,
                           std::vector<uint64_t> of_scales) {
    const absl::Status status =
        JoinMxfp4Pairs({{name + "_blocks", TensorOf(std::move(of_nibbles), nibbles)},
                        {name + "_scales", TensorOf(std::move(of_scales), scales)}})
            .status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("a", {1, 2, 3, 16}, {1, 3, 2}), HasSubstr("tensor a_blocks"));
  EXPECT_THAT(refusal("a", {2, 3, 16}, {2, 3}), HasSubstr("tensor a_blocks"));
  EXPECT_THAT(refusal("a", {1, 6, 1, 8, 2}, {1, 6, 1}), HasSubstr("tensor a_blocks"));
  EXPECT_THAT(refusal("x.gate_up_proj", {2, 3, 1, 16}, {2, 3, 1}), HasSubstr("gate_up_proj_blocks"))
      << "gate and up have the same number of rows";
}

TEST(Mxfp4PairsTest, LeavesOutWhatHasNoPartner) {
  const std::vector<std::byte> bytes = Pattern(16, 3);
  const absl::StatusOr<JoinedTensors> joined =
      JoinMxfp4Pairs({{"a_blocks", TensorOf({1, 1, 1, 16}, bytes)},
                      {"b_scales", TensorOf({1, 4, 4}, bytes)},
                      {"c", TensorOf({16}, bytes)}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(joined->tensors.empty());
}

}  // namespace
}  // namespace pagoda
