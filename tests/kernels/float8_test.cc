// The two 8-bit types against their definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "kernels/numeric.h"

namespace pagoda::kernels {
namespace {

struct Format {
  int fraction_bits;
  int bias;
  uint8_t largest;  // The bits of the largest finite value.
  float (*to_float)(uint8_t bits);
  uint8_t (*from_float)(float value);
};

constexpr Format kE4M3{.fraction_bits = 3,
                       .bias = 7,
                       .largest = 0x7e,
                       .to_float = [](uint8_t bits) { return ToFloat(Float8E4M3{bits}); },
                       .from_float = [](float value) { return FromFloat<Float8E4M3>(value).bits; }};
constexpr Format kE5M2{.fraction_bits = 2,
                       .bias = 15,
                       .largest = 0x7b,
                       .to_float = [](uint8_t bits) { return ToFloat(Float8E5M2{bits}); },
                       .from_float = [](float value) { return FromFloat<Float8E5M2>(value).bits; }};

// The value of finite bits, from the definition.
double ByDefinition(const Format& format, uint8_t bits) {
  const int exponent = (bits & 0x7f) >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int one = 1 << format.fraction_bits;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - format.bias - format.fraction_bits)
                    : std::ldexp(one + fraction, exponent - format.bias - format.fraction_bits);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// The finite bits nearest to `value`, found by trying all of them. Between two equally near ones,
// the even one. All larger values round to the largest one, because a double might not distinguish
// their distances.
uint8_t NearestByDefinition(const Format& format, float value) {
  const double magnitude = std::min(std::abs(double{value}), ByDefinition(format, format.largest));
  uint8_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (uint8_t bits = 0; bits <= format.largest; ++bits) {
    const double distance = std::abs(magnitude - ByDefinition(format, bits));
    if (distance < best_distance || (distance == best_distance && bits % 2 == 0)) {
      best = bits;
      best_distance = distance;
    }
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

class Float8Test : public ::testing::TestWithParam<Format> {};

TEST_P(Float8Test, EveryFiniteValueIsExactAndComesBack) {
  const Format& format = GetParam();
  int count = 0;
  for (uint32_t i = 0; i < 0x100; ++i) {
    const auto bits = static_cast<uint8_t>(i);
    if ((bits & 0x7f) > format.largest) continue;
    ++count;
    ASSERT_EQ(format.to_float(bits), ByDefinition(format, bits)) << "bits " << i;
    ASSERT_EQ(std::signbit(format.to_float(bits)), (bits & 0x80) != 0) << "bits " << i;
    ASSERT_EQ(format.from_float(format.to_float(bits)), bits) << "bits " << i;
  }
  EXPECT_EQ(count, 2 * (format.largest + 1));
}

TEST_P(Float8Test, RoundsToNearestEvenAroundEveryMiddle) {
  const Format& format = GetParam();
  for (uint8_t low = 0; low < format.largest; ++low) {
    const float middle = (format.to_float(low) + format.to_float(low + 1)) / 2;  // Exact.
    for (const float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f),
                              -std::nextafter(middle, 0.0f), -middle}) {
      ASSERT_EQ(format.from_float(value), NearestByDefinition(format, value))
          << value << " above bits " << int{low};
    }
    ASSERT_EQ(format.from_float(middle) & 0x7f, low % 2 == 0 ? low : low + 1);
  }
}

TEST_P(Float8Test, RoundsToNearestEvenAnywhere) {
  const Format& format = GetParam();
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    // Any bits except NaN's and infinity's, with a preference for the exponents of the format.
    const uint32_t exponent = i % 4 == 0 ? random() % 255 : 127 - 24 + random() % 42;
    const uint32_t fraction =
        static_cast<uint32_t>(random()) & (i % 3 == 0 ? 0x7c0000u : 0x7fffffu);  // Many ties.
    const uint32_t sign = random() & 0x80000000u;
    const auto value = std::bit_cast<float>(sign | exponent << 23 | fraction);
    ASSERT_EQ(format.from_float(value), NearestByDefinition(format, value)) << value;
  }
}

TEST_P(Float8Test, Saturates) {
  const Format& format = GetParam();
  const float largest = format.to_float(format.largest);
  for (const float value :
       {std::nextafter(largest, 1e9f), largest * 1.01f, largest * 2, 1e30f,
        std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(format.from_float(value), format.largest) << value;
    EXPECT_EQ(format.from_float(-value), 0x80 | format.largest) << -value;
  }
}

TEST_P(Float8Test, NanStaysNan) {
  const Format& format = GetParam();
  for (const uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u}) {
    EXPECT_TRUE(std::isnan(format.to_float(format.from_float(std::bit_cast<float>(bits)))));
  }
}

TEST_P(Float8Test, TheSmallestSubnormalsRoundToZeroFromHalfOfThem) {
  const Format& format = GetParam();
  const float smallest = format.to_float(1);
  EXPECT_EQ(format.from_float(smallest / 2), 0);
  EXPECT_EQ(format.from_float(-smallest / 2), 0x80);
  EXPECT_EQ(format.from_float(std::nextafter(smallest / 2, 1.0f)), 1);
  EXPECT_EQ(format.from_float(std::numeric_limits<float>::denorm_min()), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, Float8Test, ::testing::Values(kE4M3, kE5M2),
                         [](const ::testing::TestParamInfo<Format>& test) {
                           return test.param.bias == 7 ? "E4M3" : "E5M2";
                         });

TEST(Float8LimitsTest, AreThoseOfTheSpecification) {
  EXPECT_EQ(ToFloat(Float8E4M3{0x7e}), 448.0f);
  EXPECT_EQ(ToFloat(Float8E5M2{0x7b}), 57344.0f);
  EXPECT_EQ(kLargestFloat8E4M3, 448.0f);
  EXPECT_EQ(kLargestFloat8E5M2, 57344.0f);
  EXPECT_EQ(ToFloat(Float8E4M3{0x01}), std::ldexp(1.0f, -9));
  EXPECT_EQ(ToFloat(Float8E5M2{0x01}), std::ldexp(1.0f, -16));
}

TEST(Float8LimitsTest, E4M3HasOneNanOfEachSignAndNoInfinity) {
  EXPECT_TRUE(std::isnan(ToFloat(Float8E4M3{0x7f})));
  EXPECT_TRUE(std::isnan(ToFloat(Float8E4M3{0xff})));
  for (uint32_t bits = 0; bits < 0x7f; ++bits) {
    EXPECT_TRUE(std::isfinite(ToFloat(Float8E4M3{static_cast<uint8_t>(bits)}))) << bits;
  }
}

TEST(Float8LimitsTest, E5M2HasInfinityAndThreeNansOfEachSign) {
  EXPECT_EQ(ToFloat(Float8E5M2{0x7c}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(ToFloat(Float8E5M2{0xfc}), -std::numeric_limits<float>::infinity());
  for (const uint8_t bits : {0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff}) {
    EXPECT_TRUE(std::isnan(ToFloat(Float8E5M2{bits}))) << int{bits};
  }
}

}  // namespace
}  // namespace pagoda::kernels
