// Rows as integers and scales: every implementation gives the same bits.
#include "engine/model/cpu/dots/unpacked_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "engine/model/cpu/loops/host_memory.h"
#include "kernels/execution/isa.h"
#include "tests/engine/model/stored_matrix.h"

namespace pagoda {
namespace {

bool HasAvx2() { return kernels::cpu::BestIsa() >= kernels::cpu::Isa::kAvx2; }

HostMemory Memory(uint64_t bytes) { return *HostMemory::Allocate(bytes); }

class UnpackedRowTest : public testing::TestWithParam<TensorType> {};
INSTANTIATE_TEST_SUITE_P(Types, UnpackedRowTest,
                         testing::ValuesIn(kTensorTypes + 3, std::end(kTensorTypes)),
                         [](const auto& type) { return std::string(TensorTypeName(type.param)); });

TEST_P(UnpackedRowTest, HasTheNumbersOfItsBlocks) {
  std::mt19937 random(1);
  for (const uint64_t blocks : {1, 2, 3, 7}) {
    const uint64_t inputs = blocks * LayoutOf(GetParam()).elements;
    const StoredMatrix matrix(GetParam(), 1, inputs, random);
    for (const UnpackRow unpack : {UnpackRowPortable, UnpackRowAvx2}) {
      if (unpack == UnpackRowAvx2 && !HasAvx2()) continue;
      HostMemory memory = Memory(UnpackedRow::Bytes(inputs));
      const UnpackedRow row = UnpackedRow::In(memory.data(), inputs);
      unpack(GetParam(), matrix.info().bytes.data(), inputs, row);
      const uint64_t group = GroupElements(GetParam());
      for (uint64_t i = 0; i < inputs; ++i) {
        // Every product is exact, so any order of these operations gives the same bits.
        const float value =
            row.scales[i / group] * static_cast<float>(row.integers[i]) - row.minimums[i / group];
        ASSERT_EQ(value, matrix.at(0, i)) << i;
      }
      for (uint64_t i = inputs; i < PaddedInputs(inputs); ++i) {
        ASSERT_EQ(row.integers[i], 0);
        ASSERT_EQ(row.scales[i / group], 0.0f);
        ASSERT_EQ(row.minimums[i / group], 0.0f);
      }
    }
  }
}

// Bytes from a file that nobody has checked: scales can be NaN, infinite or denormal.
TEST_P(UnpackedRowTest, AllImplementationsGiveTheSameBitsForAnyBytes) {
  if (!HasAvx2()) GTEST_SKIP() << "this processor has no AVX2";
  std::mt19937 random(2);
  const uint64_t inputs = 12 * LayoutOf(GetParam()).elements;
  const uint64_t bytes = UnpackedRow::Bytes(inputs);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> row(12 * LayoutOf(GetParam()).bytes);
    for (std::byte& byte : row) byte = static_cast<std::byte>(random());
    HostMemory memories[2] = {Memory(bytes), Memory(bytes)};
    UnpackRowPortable(GetParam(), row.data(), inputs, UnpackedRow::In(memories[0].data(), inputs));
    UnpackRowAvx2(GetParam(), row.data(), inputs, UnpackedRow::In(memories[1].data(), inputs));
    const auto* plain = reinterpret_cast<const uint8_t*>(memories[0].data());
    const auto* fast = reinterpret_cast<const uint8_t*>(memories[1].data());
    for (uint64_t i = 0; i < PaddedInputs(inputs); ++i) ASSERT_EQ(plain[i], fast[i]) << i;
    for (uint64_t i = PaddedInputs(inputs); i < bytes; i += sizeof(float)) {
      float numbers[2];
      std::memcpy(&numbers[0], plain + i, sizeof(float));
      std::memcpy(&numbers[1], fast + i, sizeof(float));
      if (std::isnan(numbers[0]) && std::isnan(numbers[1])) continue;  // With any payload.
      ASSERT_EQ(numbers[0], numbers[1]) << i;
    }
  }
}

TEST(QuantisedRowTest, IsWithinHalfAStep) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const QuantiseRow quantise : {QuantiseRowPortable, QuantiseRowAvx2}) {
    if (quantise == QuantiseRowAvx2 && !HasAvx2()) continue;
    for (const uint64_t inputs : {32, 96, 256, 1056}) {
      std::vector<float> values(inputs);
      for (uint64_t i = 0; i < inputs; ++i) {
        values[i] = normal(random) * std::exp2(static_cast<float>(i / 32 % 20) - 10.0f);
      }
      for (uint64_t i = 32; i < std::min<uint64_t>(inputs, 64); ++i) values[i] = 0;
      HostMemory memory = Memory(QuantisedRow::Bytes(inputs));
      const QuantisedRow row = QuantisedRow::In(memory.data(), inputs);
      quantise(values.data(), inputs, row);
      std::vector<float> sums(inputs / 16);
      for (uint64_t i = 0; i < inputs; ++i) {
        const float scale = row.scales[i / 4];
        ASSERT_LE(std::abs(scale * static_cast<float>(row.integers[i]) - values[i]),
                  0.5001f * scale);
        sums[i / 16] += static_cast<float>(row.integers[i]);
      }
      for (uint64_t g = 0; g < inputs / 16; ++g) {
        ASSERT_EQ(row.sums16[g], row.scales[4 * g] * sums[g]);
        if (g % 2 != 0) continue;
        ASSERT_EQ(row.sums32[g / 2], row.scales[4 * g] * (sums[g] + sums[g + 1]));
      }
      for (uint64_t i = inputs; i < PaddedInputs(inputs); ++i) ASSERT_EQ(row.integers[i], 0);
    }
  }
}

TEST(QuantisedRowTest, AllImplementationsGiveTheSameBits) {
  if (!HasAvx2()) GTEST_SKIP() << "this processor has no AVX2";
  std::mt19937 random(3);
  constexpr uint64_t kInputs = 32 * 50;
  for (int round = 0; round < 20; ++round) {
    std::vector<float> values(kInputs);
    for (float& value : values) {
      // Any bits, but finite ones: denormal numbers and the largest.
      do {
        const auto bits = static_cast<uint32_t>(random());
        std::memcpy(&value, &bits, sizeof(value));
      } while (!std::isfinite(value));
    }
    HostMemory memories[2] = {Memory(QuantisedRow::Bytes(kInputs)),
                              Memory(QuantisedRow::Bytes(kInputs))};
    const QuantisedRow plain = QuantisedRow::In(memories[0].data(), kInputs);
    const QuantisedRow fast = QuantisedRow::In(memories[1].data(), kInputs);
    QuantiseRowPortable(values.data(), kInputs, plain);
    QuantiseRowAvx2(values.data(), kInputs, fast);
    for (uint64_t i = 0; i < kInputs; ++i) {
      ASSERT_EQ(plain.integers[i], fast.integers[i]) << values[i];
      ASSERT_EQ(plain.scales[i / 4], fast.scales[i / 4]);
    }
    for (uint64_t g = 0; g < kInputs / 16; ++g) ASSERT_EQ(plain.sums16[g], fast.sums16[g]);
  }
}

TEST(QuantisedRowTest, ABlockThatIsNotFiniteHasTheScaleNaN) {
  for (const QuantiseRow quantise : {QuantiseRowPortable, QuantiseRowAvx2}) {
    if (quantise == QuantiseRowAvx2 && !HasAvx2()) continue;
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      for (uint64_t at = 0; at < 32; ++at) {
        std::vector<float> values(96, 1.0f);
        values[32 + at] = bad;
        HostMemory memory = Memory(QuantisedRow::Bytes(96));
        const QuantisedRow row = QuantisedRow::In(memory.data(), 96);
        quantise(values.data(), 96, row);
        EXPECT_TRUE(std::isnan(row.scales[8]) && std::isnan(row.sums32[1]));
        EXPECT_TRUE(row.scales[0] > 0 && row.scales[16] > 0);
      }
    }
  }
}

}  // namespace
}  // namespace pagoda
