#include "clients/pagoda_plan/size/drive_life.h"

#include <optional>

#include "gtest/gtest.h"

namespace pagoda {
namespace {

TEST(DriveLifeTest, SevenPetabytesLastFiveYearsAtFortyFourMegabytesASecond) {
  // 7e15 / 44e6 = 159,090,909 s = 1,841.3 days.
  EXPECT_NEAR(LifeYears({.capacity_bytes = 3.84e12, .endurance_bytes = 7e15}, 44e6), 1841.3 / 365,
              0.001);
}

TEST(DriveLifeTest, ADriveOfOneWriteADayLastsItsYearsAtOneWriteADay) {
  const double endurance = EnduranceBytes(3.84e12, 1, 5);
  EXPECT_DOUBLE_EQ(endurance, 3.84e12 * 1825);
  // 3.84e12 / 86,400.
  EXPECT_NEAR(OneWritePerDay(3.84e12), 44.44e6, 0.01e6);
  EXPECT_DOUBLE_EQ(
      LifeYears({.capacity_bytes = 3.84e12, .endurance_bytes = endurance}, OneWritePerDay(3.84e12)),
      5);
  EXPECT_DOUBLE_EQ(LifeYears({.capacity_bytes = 3.84e12, .endurance_bytes = endurance},
                             10 * OneWritePerDay(3.84e12)),
                   0.5);
}

TEST(DriveLifeTest, ARateIsASizeASecond) {
  EXPECT_EQ(ParseByteRate("44MB/s"), 44e6);
  EXPECT_EQ(ParseByteRate("1.5GiB/s"), 1.5 * 0x1p30);
}

TEST(DriveLifeTest, WhatIsNoRateIsRefused) {
  for (const char* text : {"", "/s", "44MB", "44/s", "0MB/s", "44MB/h"}) {
    EXPECT_EQ(ParseByteRate(text), std::nullopt) << text;
  }
}

TEST(DriveLifeTest, IsShownInTheUnitsOfDataSheets) {
  EXPECT_EQ(FormatDecimalBytes(12), "12 B");
  EXPECT_EQ(FormatDecimalBytes(44e6), "44.0 MB");
  EXPECT_EQ(FormatDecimalBytes(3.84e12), "3.84 TB");
  EXPECT_EQ(FormatDecimalBytes(7e15), "7.00 PB");
  EXPECT_EQ(FormatDecimalBytes(5e18), "5000.0 PB");
  EXPECT_EQ(FormatYears(5.04), "5.0 years");
  EXPECT_EQ(FormatYears(0.2), "73 days");
}

}  // namespace
}  // namespace pagoda
