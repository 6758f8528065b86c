#include "base/byte_size.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>

namespace pagoda {
namespace {

constexpr uint64_t kMost = ~uint64_t{0};

TEST(ByteSizeTest, UnitsAreDecimalOrBinary) {
  EXPECT_EQ(ParseByteSize("12B"), 12u);
  EXPECT_EQ(ParseByteSize("1kB"), 1'000u);
  EXPECT_EQ(ParseByteSize("3KB"), 3'000u);
  EXPECT_EQ(ParseByteSize("44MB"), 44'000'000u);
  EXPECT_EQ(ParseByteSize("500GB"), 500'000'000'000u);
  EXPECT_EQ(ParseByteSize("2TB"), 2'000'000'000'000u);
  EXPECT_EQ(ParseByteSize("7PB"), 7'000'000'000'000'000u);
  EXPECT_EQ(ParseByteSize("64KiB"), uint64_t{64} << 10);
  EXPECT_EQ(ParseByteSize("512MiB"), uint64_t{512} << 20);
  EXPECT_EQ(ParseByteSize("80GiB"), uint64_t{80} << 30);
  EXPECT_EQ(ParseByteSize("2TiB"), uint64_t{2} << 40);
  EXPECT_EQ(ParseByteSize("3PiB"), uint64_t{3} << 50);
}

TEST(ByteSizeTest, ABlankMayStandBeforeTheUnit) {
  EXPECT_EQ(ParseByteSize("64 MiB"), uint64_t{64} << 20);
  EXPECT_EQ(ParseByteSize("7 B"), 7u);
  EXPECT_EQ(ParseByteSizeWithUnit("1.5 GiB"), uint64_t{3} << 29);
}

TEST(ByteSizeTest, AFractionOfAUnitIsRoundedUpToAByte) {
  EXPECT_EQ(ParseByteSize("1.5GiB"), uint64_t{3} << 29);
  EXPECT_EQ(ParseByteSize("7.68TB"), 7'680'000'000'000u);
  EXPECT_EQ(ParseByteSize("64.0MiB"), uint64_t{64} << 20);
  EXPECT_EQ(ParseByteSize("2.KiB"), 2048u);
  EXPECT_EQ(ParseByteSize(".5KiB"), 512u);
  EXPECT_EQ(ParseByteSize("1.1KiB"), 1127u) << "1126.4";
  EXPECT_EQ(ParseByteSize("0.0001KB"), 1u) << "0 means something else to most options";
  EXPECT_EQ(ParseByteSize("0.0KB"), 0u);
}

TEST(ByteSizeTest, ANumberWithoutAUnitIsBytesUnlessItIsRefused) {
  EXPECT_EQ(ParseByteSize("0"), 0u);
  EXPECT_EQ(ParseByteSize("1234567"), 1'234'567u);
  EXPECT_EQ(ParseByteSizeWithUnit("0"), std::nullopt);
  EXPECT_EQ(ParseByteSizeWithUnit("1234567"), std::nullopt);
  EXPECT_EQ(ParseByteSizeWithUnit("0MB"), 0u);
}

TEST(ByteSizeTest, TheLargestSizeHas64Bits) {
  EXPECT_EQ(ParseByteSize("18446744073709551615"), kMost);
  EXPECT_EQ(ParseByteSize("18446744073709551615B"), kMost);
  EXPECT_EQ(ParseByteSize("16777215TiB"), kMost - (uint64_t{1} << 40) + 1);
  EXPECT_EQ(ParseByteSize("18446.744073709551615PB"), kMost);
  for (const char* text : {"18446744073709551616", "18446744073709551616B", "16777216TiB",
                           "16384PiB", "18446.744073709551616PB", "99999999999TiB",
                           "100000000000000000000000000000000000000000KiB",
                           "1.0000000000000000000000000000000000000000KiB"}) {
    EXPECT_EQ(ParseByteSize(text), std::nullopt) << text;
  }
}

TEST(ByteSizeTest, OtherTextsAreRefused) {
  for (const char* text :
       {"",       " ",     "B",      "GiB",  " GiB",       ".GiB", ".",     "1.5",   "1.5B",
        "1..2TB", "-1",    "-1GiB",  "+1",   "+1GB",       "1e3",  "1e3TB", "infTB", "nanTB",
        "0x1KB",  "8gib",  "8 gb",   "8G",   "8Gi",        "8K",   "8EB",   "1GiBB", "8  GiB",
        " 8GiB",  "8GiB ", "8\tGiB", "8 ",   " 8",         "8Kib", "8mB",   "44/s",  "44MB/s",
        "50%",    "1,000", "1'000",  "GiB8", "8 GiB 1 MiB"}) {
    EXPECT_EQ(ParseByteSize(text), std::nullopt) << "'" << text << "'";
    EXPECT_EQ(ParseByteSizeWithUnit(text), std::nullopt) << "'" << text << "'";
  }
  EXPECT_EQ(ParseByteSize(absl::string_view("8\0GiB", 5)), std::nullopt);
}

TEST(ByteSizeTest, TheShortestTextIsPrinted) {
  EXPECT_EQ(ByteSizeText(0), "0");
  EXPECT_EQ(ByteSizeText(1001), "1001");
  EXPECT_EQ(ByteSizeText(1024), "1024");
  EXPECT_EQ(ByteSizeText(uint64_t{42} << 20), "42MiB");
  EXPECT_EQ(ByteSizeText(44'000'000), "44MB");
  EXPECT_EQ(ByteSizeTextWithUnit(0), "0B");
  EXPECT_EQ(ByteSizeTextWithUnit(100), "100B");
  EXPECT_EQ(ByteSizeTextWithUnit(1000), "1KB");
  EXPECT_EQ(ByteSizeTextWithUnit(1024), "1KiB");
  EXPECT_EQ(ByteSizeTextWithUnit(uint64_t{8} << 30), "8GiB");
}

TEST(ByteSizeTest, EveryPrintedTextReadsBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    uint64_t bytes = random() >> (random() % 64);
    if (i % 3 == 1) bytes <<= random() % 64;
    if (i % 3 == 2) bytes *= 1'000'000;
    for (const uint64_t size : {bytes, kMost - bytes}) {
      EXPECT_EQ(ParseByteSize(ByteSizeText(size)), size) << ByteSizeText(size);
      EXPECT_EQ(ParseByteSizeWithUnit(ByteSizeTextWithUnit(size)), size);
    }
  }
}

}  // namespace
}  // namespace pagoda
