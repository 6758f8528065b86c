#include "clients/command_line/terminal/format.h"

#include "clients/command_line/terminal/printable_output.h"
#include "clients/command_line/terminal/terminal.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

TEST(FormatTest, CountsHaveSeparators) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCounted(0, "session"), "0 sessions");
  EXPECT_EQ(FormatCounted(1, "session"), "1 session");
  EXPECT_EQ(FormatCounted(2000, "session"), "2,000 sessions");
}

TEST(FormatTest, SharesAndBytes) {
  EXPECT_EQ(FormatShare(0.3664), "36.64 %");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(64 << 20), "64.0 MiB");
  EXPECT_EQ(FormatBytes(uint64_t{5} << 40), "5.0 TiB");
}

TEST(FormatTest, DurationsChooseTheirUnit) {
  EXPECT_EQ(FormatElapsed(absl::Microseconds(85)), "85 us");
  EXPECT_EQ(FormatElapsed(absl::Microseconds(1240)), "1.24 ms");
  EXPECT_EQ(FormatElapsed(absl::Milliseconds(3500)), "3.50 s");
  EXPECT_EQ(FormatElapsed(absl::Seconds(192)), "3 min 12 s");
  EXPECT_EQ(FormatElapsed(absl::Minutes(125)), "2 h 5 min");
}

TEST(FormatTest, OneThingHasNoPlural) {
  EXPECT_EQ(FormatCounted(1, "session"), "1 session");
  EXPECT_EQ(FormatCounted(0, "session"), "0 sessions");
  EXPECT_EQ(FormatCounted(2000, "copy"), "2,000 copies");
  EXPECT_EQ(FormatCounted(2, "batch"), "2 batches");
  EXPECT_EQ(FormatCached(1, "token"), "1 token is cached");
  EXPECT_EQ(FormatCached(2, "token"), "2 tokens are cached");
}

TEST(FormatTest, ShareOfNothingIsZero) { EXPECT_EQ(Share(0, 0), 0); }

TEST(FormatTest, BarsShowAnythingAboveZero) {
  const Terminal plain;
  EXPECT_EQ(Bar(plain, 0, 4), "....");
  EXPECT_EQ(Bar(plain, 0.001, 4), "#...");
  EXPECT_EQ(Bar(plain, 0.99, 4), "###.");
  EXPECT_EQ(Bar(plain, 1.5, 4), "####");
  Terminal unicode;
  unicode.unicode = true;
  EXPECT_EQ(Bar(unicode, 0.5, 2), "█░");
}

TEST(TerminalTest, OnlyColouredTerminalsGetEscapes) {
  Terminal terminal;
  EXPECT_EQ(Paint(terminal, Style::kRed, "x"), "x");
  terminal.color = true;
  EXPECT_EQ(ForTerminal(Paint(terminal, Style::kRed, "x")), "\x1b[31mx\x1b[0m");
}

}  // namespace
}  // namespace pagoda
