#include "clients/pagoda_plan/trace/portable_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

#include "gtest/gtest.h"

namespace pagoda {
namespace {

constexpr double kError = 1e-15;

TEST(PortableMathTest, IsCloseToTheLibrary) {
  std::mt19937_64 bits(3);
  for (int i = 0; i < 200'000; ++i) {
    const double uniform = static_cast<double>(bits() >> 11) * 0x1.0p-53;
    for (const double value : {1 - uniform, 1 + 1e6 * uniform, 1e-300 * (uniform + 1e-9)}) {
      EXPECT_NEAR(PortableLog(value), std::log(value), kError * std::abs(std::log(value)));
    }
    const double power = 1400 * (uniform - 0.5);
    EXPECT_NEAR(PortableExp(power), std::exp(power), kError * std::exp(power));
    const double turns = 8 * (uniform - 0.5);
    EXPECT_NEAR(PortableCosOfTurns(turns), std::cos(2 * std::numbers::pi * turns), 4e-15);
  }
}

TEST(PortableMathTest, KnowsTheExactResults) {
  EXPECT_EQ(PortableLog(1), 0);
  EXPECT_EQ(PortableLog(2), std::numbers::ln2);
  EXPECT_EQ(PortableExp(0), 1);
  for (int turns = -2; turns <= 2; ++turns) {
    EXPECT_EQ(PortableCosOfTurns(turns), 1);
    EXPECT_EQ(PortableCosOfTurns(turns + 0.25), 0);
    EXPECT_EQ(PortableCosOfTurns(turns + 0.5), -1);
    EXPECT_EQ(PortableCosOfTurns(turns + 0.75), 0);
  }
}

// Sums of the bits of many results, as they were when this was written.
TEST(PortableMathTest, GivesTheSameBitsOnEveryMachine) {
  uint64_t log = 0, exp = 0, cos = 0;
  for (int i = 1; i <= 10'000; ++i) {
    const double value = i * 0x1.0p-13;
    log += std::bit_cast<uint64_t>(PortableLog(value)) * static_cast<uint64_t>(i);
    exp += std::bit_cast<uint64_t>(PortableExp(20 * (value - 0.5))) * static_cast<uint64_t>(i);
    cos += std::bit_cast<uint64_t>(PortableCosOfTurns(value)) * static_cast<uint64_t>(i);
  }
  EXPECT_EQ(log, 6926329447721173046u);
  EXPECT_EQ(exp, 3218768508894289548u);
  EXPECT_EQ(cos, 16155804975334314280u);
}

}  // namespace
}  // namespace pagoda
