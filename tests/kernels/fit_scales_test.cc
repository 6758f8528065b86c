// The scales of float8 blocks: FitScales against the rules of kernels/float8_scales.h, written down
// once more in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/cache/cache.h"
#include "kernels/float8_scales.h"
#include "tests/kernels/test_pool.h"

namespace pagoda::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

double LargestOf(ElementType type) {
  return type == ElementType::kFloat8E4M3 ? kLargestFloat8E4M3 : kLargestFloat8E5M2;
}

// The scale that a token needs whose largest number is `largest`.
double NeededScale(ElementType type, double largest) {
  double scale = kSmallestFittedScale;
  while (largest / scale > LargestOf(type)) scale *= 2;
  return scale;
}

// The scale of a block, by its first token's largest number and that of all its tokens.
double ExpectedScale(ElementType type, double first, double largest) {
  return std::max(32 * NeededScale(type, first), NeededScale(type, largest));
}

// Half a unit of a number's last bit, after a division by `scale` that may have come in two steps.
double Tolerance(ElementType type, double number, double scale) {
  const int fraction_bits = type == ElementType::kFloat8E4M3 ? 3 : 2;
  const int least_exponent = type == ElementType::kFloat8E4M3 ? -6 : -14;
  const double quotient = std::abs(number / scale);
  const int exponent = quotient == 0 ? least_exponent : std::ilogb(quotient);
  const double unit = std::ldexp(scale, std::max(exponent, least_exponent) - fraction_bits);
  return exponent < least_exponent ? unit : 0.5 * unit;
}

class FitScalesTest : public testing::TestWithParam<ElementType> {
 protected:
  static constexpr uint32_t kHeads = 3;
  static constexpr uint32_t kTokens = 8;
  static constexpr uint32_t kSlots = 5;
  static constexpr uint32_t kDim = 24;

  FitScalesTest()
      : pool_({.type = GetParam(),
               .num_slots = kSlots,
               .num_kv_heads = kHeads,
               .tokens_per_block = kTokens,
               .head_dim = kDim}),
        scales_(kSlots * 2 * kHeads, kNan),
        kv_(pool_.kv()) {
    kv_.scales = {.keys = scales_.data(),
                  .values = scales_.data() + kHeads,
                  .per_head = true,
                  .slot_stride = 2 * kHeads};
  }

  float KeyScale(uint32_t slot, uint32_t head) const { return scales_[slot * 2 * kHeads + head]; }
  float ValueScale(uint32_t slot, uint32_t head) const {
    return scales_[slot * 2 * kHeads + kHeads + head];
  }

  // Writes rows of K and V, [token slots][kHeads][kDim], as the engine does.
  void Write(const std::vector<int64_t>& token_slots, const float* keys, const float* values,
             const cpu::Execution& execution = {}) {
    const CacheWriteParams params = {.rows = {.keys = keys,
                                              .values = values,
                                              .key_token_stride = kHeads * kDim,
                                              .value_token_stride = kHeads * kDim},
                                     .token_slots = token_slots,
                                     .kv = kv_};
    ASSERT_TRUE(cpu::FitScales(params, execution).ok());
    ASSERT_TRUE(cpu::WriteCache(params, execution).ok());
  }
  // One number in all elements of a token, of K and of V.
  void WriteToken(int64_t token_slot, float number) {
    const std::vector<float> row(kHeads * kDim, number);
    Write({token_slot}, row.data(), row.data());
  }

  float Key(int64_t token_slot, uint32_t head, uint32_t i) const {
    return pool_.Read(kv_.keys, token_slot, head, i) *
           KeyScale(static_cast<uint32_t>(token_slot / kTokens), head);
  }
  float Value(int64_t token_slot, uint32_t head, uint32_t i) const {
    return pool_.Read(kv_.values, token_slot, head, i) *
           ValueScale(static_cast<uint32_t>(token_slot / kTokens), head);
  }

  TestPool pool_;
  std::vector<float> scales_;
  KvLayer kv_;
};
INSTANTIATE_TEST_SUITE_P(Types, FitScalesTest,
                         testing::Values(ElementType::kFloat8E4M3, ElementType::kFloat8E5M2),
                         [](const auto& type) {
                           return type.param == ElementType::kFloat8E4M3 ? "e4m3" : "e5m2";
                         });

TEST_P(FitScalesTest, TheSmallestPowerOfTwoThatDoesNotSaturate) {
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const float number = std::abs(std::bit_cast<float>(static_cast<uint32_t>(random())));
    if (!std::isfinite(number)) continue;
    const float scale = FittedScale(GetParam(), FiniteMagnitude(number));
    EXPECT_EQ(scale, NeededScale(GetParam(), number)) << number;
  }
  const auto largest = static_cast<float>(LargestOf(GetParam()));
  EXPECT_EQ(FittedScale(GetParam(), FiniteMagnitude(largest)), 1.0f);
  EXPECT_EQ(FittedScale(GetParam(), FiniteMagnitude(std::nextafter(largest, 1e9f))), 2.0f);
  EXPECT_EQ(FittedScale(GetParam(), 0), kSmallestFittedScale);
  EXPECT_EQ(FiniteMagnitude(kNan), 0u);
  EXPECT_EQ(FiniteMagnitude(-kInfinity), 0u);
}

// Sequences grow by random chunks; each token's numbers have a random size, so that scales rise.
TEST_P(FitScalesTest, RandomChunksKeepEveryTokenAndTheScalesOfOneCall) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  cpu::ThreadPool threads(2);
  for (int round = 0; round < 200; ++round) {
    std::fill(scales_.begin(), scales_.end(), round % 2 == 0 ? kNan : 1e9f);
    std::vector<int64_t> token_slots;
    for (const int32_t slot : ShuffledSlots(kSlots, random)) {
      for (uint32_t t = 0; t < kTokens; ++t) token_slots.push_back(slot * int64_t{kTokens} + t);
    }
    token_slots.resize(1 + random() % token_slots.size());
    const uint64_t row = kHeads * kDim;
    std::vector<float> keys(token_slots.size() * row), values(keys.size());
    for (size_t n = 0; n < token_slots.size(); ++n) {
      const float size = std::exp2(static_cast<float>(random() % 30) - 15.0f);
      for (uint64_t i = n * row; i < (n + 1) * row; ++i) {
        keys[i] = normal(random) * size;
        values[i] = normal(random) / size;
      }
    }
    for (size_t first = 0; first < token_slots.size();) {
      const size_t count = std::min<size_t>(token_slots.size() - first, 1 + random() % 11);
      Write({token_slots.begin() + first, token_slots.begin() + first + count}, &keys[first * row],
            &values[first * row], {.threads = round % 3 == 0 ? &threads : nullptr});
      first += count;
    }
    for (size_t n = 0; n < token_slots.size(); ++n) {
      const auto slot = static_cast<uint32_t>(token_slots[n] / kTokens);
      for (uint32_t head = 0; head < kHeads; ++head) {
        double first_key = 0, first_value = 0, largest_key = 0, largest_value = 0;
        for (size_t m = 0; m < token_slots.size(); ++m) {
          if (token_slots[m] / kTokens != slot) continue;
          for (uint32_t i = 0; i < kDim; ++i) {
            const uint64_t at = m * row + head * kDim + i;
            largest_key = std::max<double>(largest_key, std::abs(keys[at]));
            largest_value = std::max<double>(largest_value, std::abs(values[at]));
          }
          if (token_slots[m] % kTokens != 0) continue;
          first_key = largest_key;
          first_value = largest_value;
        }
        ASSERT_EQ(KeyScale(slot, head), ExpectedScale(GetParam(), first_key, largest_key));
        ASSERT_EQ(ValueScale(slot, head), ExpectedScale(GetParam(), first_value, largest_value));
        for (uint32_t i = 0; i < kDim; ++i) {
          const uint64_t at = n * row + head * kDim + i;
          ASSERT_NEAR(Key(token_slots[n], head, i), keys[at],
                      Tolerance(GetParam(), keys[at], KeyScale(slot, head)));
          ASSERT_NEAR(Value(token_slots[n], head, i), values[at],
                      Tolerance(GetParam(), values[at], ValueScale(slot, head)));
        }
      }
    }
  }
}

// If no token is 32 times as large as the first, the first token fixes the scales. Then the bytes
// of each token are those of a call of its own, with any tokens behind it.
TEST_P(FitScalesTest, WithinTheHeadroomChunksChangeNoBit) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> fraction(1.0f, 1.99f);
  const uint64_t row = kHeads * kDim;
  for (int round = 0; round < 100; ++round) {
    std::vector<float> keys(kTokens * row), values(keys.size());
    const float size = std::exp2(static_cast<float>(random() % 60) - 30.0f);
    for (uint64_t i = 0; i < keys.size(); ++i) {
      // Later tokens are up to 32 times as large as the first.
      const int exponent = i < row ? 0 : static_cast<int>(random() % 15) - 10;
      keys[i] = size * std::ldexp(fraction(random), exponent);
      values[i] = -keys[i] / 3;
    }
    std::vector<int64_t> token_slots(kTokens);
    std::iota(token_slots.begin(), token_slots.end(), int64_t{kTokens});
    Write(token_slots, keys.data(), values.data());
    const std::vector<std::byte> together = pool_.bytes();
    const std::vector<float> scales(scales_.begin() + 2 * kHeads, scales_.begin() + 4 * kHeads);
    for (uint32_t head = 0; head < kHeads; ++head) {
      EXPECT_EQ(KeyScale(1, head),
                32 * NeededScale(GetParam(),
                                 *std::max_element(&keys[head * kDim], &keys[(head + 1) * kDim])));
    }
    for (uint32_t t = 0; t < kTokens; ++t) {
      Write({token_slots[t]}, &keys[t * row], &values[t * row]);
    }
    EXPECT_EQ(pool_.bytes(), together);
    EXPECT_TRUE(std::equal(scales.begin(), scales.end(), scales_.begin() + 2 * kHeads));
  }
}

TEST_P(FitScalesTest, TouchesOnlyTheBlockThatIsWritten) {
  for (int64_t token = 0; token < 3; ++token) WriteToken(token, 1.0f);
  for (int64_t token = kTokens; token < 2 * kTokens; ++token) WriteToken(token, 1.0f);
  const std::vector<std::byte> bytes = pool_.bytes();
  const std::vector<float> scales = scales_;
  WriteToken(3, 1e4f);
  EXPECT_GT(KeyScale(0, 0), scales[0]);
  for (size_t i = 2 * kHeads; i < scales.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(scales_[i]), std::bit_cast<uint32_t>(scales[i]));
  }
  EXPECT_TRUE(std::equal(bytes.begin() + static_cast<ptrdiff_t>(kv_.slot_stride_bytes), bytes.end(),
                         pool_.bytes().begin() + static_cast<ptrdiff_t>(kv_.slot_stride_bytes)));
  for (int64_t token = 0; token < 3; ++token) EXPECT_EQ(Key(token, 1, 5), 1.0f);
}

TEST_P(FitScalesTest, ASmallerTokenChangesNothingBeforeIt) {
  WriteToken(0, 1e4f);
  const std::vector<float> scales = scales_;
  const float before = Value(0, 2, 3);
  WriteToken(1, 1e-4f);
  for (uint32_t i = 0; i < 2 * kHeads; ++i) EXPECT_EQ(scales_[i], scales[i]);
  EXPECT_EQ(Value(0, 2, 3), before);
}

TEST_P(FitScalesTest, TheFirstTokenStartsTheBlock) {
  WriteToken(0, 1e4f);
  WriteToken(1, 1e4f);
  WriteToken(0, 1e-4f);
  EXPECT_EQ(KeyScale(0, 0), ExpectedScale(GetParam(), 1e-4f, 1e-4f));
  EXPECT_NEAR(Key(0, 0, 0), 1e-4, 1e-5);
}

TEST_P(FitScalesTest, NanAndInfinityDoNotCount) {
  std::vector<float> row(kHeads * kDim, 1.0f);
  row[0] = kNan;
  row[1] = kInfinity;
  row[2] = -kInfinity;
  Write({0}, row.data(), row.data());
  EXPECT_EQ(KeyScale(0, 0), KeyScale(0, 1));
  EXPECT_TRUE(std::isnan(Key(0, 0, 0)));
  EXPECT_EQ(Key(0, 0, 1), LargestOf(GetParam()) * KeyScale(0, 0));
  EXPECT_EQ(Key(0, 0, 2), -Key(0, 0, 1));
  EXPECT_NEAR(Key(0, 0, 3), 1.0f, 0.1f);
  WriteToken(1, 100.0f);  // Raises the scale: NaN stays NaN.
  EXPECT_TRUE(std::isnan(Key(0, 0, 0)));
  EXPECT_NEAR(Key(0, 0, 3), 1.0f, 0.1f);
}

// A block of another writer has scales that are no powers of two, or none that make sense.
TEST_P(FitScalesTest, OtherWritersScalesAreRaisedOrReplaced) {
  WriteToken(0, 1.0f);
  scales_[0] *= 0.75f;
  const float before = Key(0, 0, 0);
  WriteToken(1, 1e4f);
  EXPECT_EQ(KeyScale(0, 0), NeededScale(GetParam(), 1e4f));
  EXPECT_NEAR(Key(0, 0, 0), before, Tolerance(GetParam(), before, KeyScale(0, 0)));
  for (const float nonsense : {kNan, 0.0f, -1.0f, kInfinity}) {
    scales_[0] = nonsense;
    WriteToken(1, 2.0f);
    EXPECT_EQ(KeyScale(0, 0), NeededScale(GetParam(), 2.0f));
  }
}

TEST_P(FitScalesTest, OneScaleForAllHeads) {
  kv_.scales = {.keys = scales_.data(), .values = scales_.data() + 1, .slot_stride = 2};
  std::vector<float> row(kHeads * kDim, 1.0f);
  row.back() = 3e4f;
  Write({0}, row.data(), row.data());
  EXPECT_EQ(scales_[0], ExpectedScale(GetParam(), 3e4f, 3e4f));
  EXPECT_EQ(scales_[1], ExpectedScale(GetParam(), 3e4f, 3e4f));
  EXPECT_TRUE(std::isnan(scales_[2]));
}

TEST_P(FitScalesTest, LatentsHaveOneScale) {
  kv_.values = kv_.keys;
  const std::vector<float> row(kHeads * kDim, 7.0f);
  const int64_t first[] = {0};
  const CacheWriteParams params = {.rows = {.keys = row.data(), .key_token_stride = kHeads * kDim},
                                   .token_slots = first,
                                   .kv = kv_};
  ASSERT_TRUE(cpu::FitScales(params).ok());
  EXPECT_EQ(KeyScale(0, 2), ExpectedScale(GetParam(), 7.0f, 7.0f));
  EXPECT_TRUE(std::isnan(ValueScale(0, 0)));
}

TEST_P(FitScalesTest, RefusesWhatWriteCacheRefuses) {
  const std::vector<float> row(kHeads * kDim, 1.0f);
  const int64_t outside[] = {kSlots * kTokens};
  EXPECT_EQ(cpu::FitScales({.rows = {.keys = row.data(),
                                     .values = row.data(),
                                     .key_token_stride = kHeads * kDim,
                                     .value_token_stride = kHeads * kDim},
                            .token_slots = outside,
                            .kv = kv_})
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::isnan(scales_[0]));
}

}  // namespace
}  // namespace pagoda::kernels
