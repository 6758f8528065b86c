#include "kernels/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace pagoda::kernels {
namespace {

// The value of a binary16, from its definition.
double HalfByDefinition(uint16_t bits) {
  const int sign = bits >> 15;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return sign != 0 ? -magnitude : magnitude;
}

bool IsHalfInfinityOrNan(uint16_t bits) { return (bits & 0x7c00) == 0x7c00; }

TEST(HalfTest, EveryFiniteValueIsExact) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    if (IsHalfInfinityOrNan(bits)) continue;
    ASSERT_EQ(ToFloat(Half{bits}), HalfByDefinition(bits)) << "bits " << bits;
  }
}

TEST(HalfTest, EveryValueComesBackFromFloat) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = ToFloat(Half{bits});
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(ToFloat(ToHalf(value)))) << "bits " << bits;
    } else {
      ASSERT_EQ(ToHalf(value).bits, bits);
    }
  }
}

TEST(HalfTest, InfinityAndNanStayWhatTheyAre) {
  EXPECT_EQ(ToFloat(Half{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(ToFloat(Half{0xfc00}), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(ToFloat(Half{0x7c01})));
  EXPECT_TRUE(std::isnan(ToFloat(ToHalf(std::numeric_limits<float>::quiet_NaN()))));
}

// Between two neighbours: below the middle rounds down, above it up, the middle to the even one.
TEST(HalfTest, RoundsToNearestEven) {
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const float middle = (ToFloat(Half{low}) + ToFloat(Half{high})) / 2;
    ASSERT_EQ(ToHalf(std::nextafter(middle, 0.0f)).bits, low);
    ASSERT_EQ(ToHalf(std::nextafter(middle, 1e6f)).bits, high);
    ASSERT_EQ(ToHalf(middle).bits, low % 2 == 0 ? low : high);
    ASSERT_EQ(ToHalf(-middle).bits, 0x8000 | (low % 2 == 0 ? low : high));
  }
}

TEST(HalfTest, BeyondTheLargestIsInfinity) {
  EXPECT_EQ(ToHalf(65504.0f).bits, 0x7bff);
  EXPECT_EQ(ToHalf(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(ToHalf(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToHalf(-1e30f).bits, 0xfc00);
}

TEST(BFloat16Test, EveryValueComesBackFromFloat) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = ToFloat(BFloat16{bits});
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(ToFloat(ToBFloat16(value)))) << "bits " << bits;
    } else {
      ASSERT_EQ(ToBFloat16(value).bits, bits);
    }
  }
}

TEST(BFloat16Test, RoundsToNearestEven) {
  EXPECT_EQ(ToBFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // Tie, even below.
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // Tie, even above.
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

}  // namespace
}  // namespace pagoda::kernels
