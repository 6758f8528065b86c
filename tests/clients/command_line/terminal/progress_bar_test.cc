#include "clients/command_line/terminal/progress_bar.h"

#include <sstream>

#include "clients/command_line/terminal/printable_output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();
const Terminal kFile;

Terminal Screen(int columns) {
  Terminal terminal;
  terminal.interactive = true;
  terminal.columns = columns;
  return terminal;
}

TEST(ProgressBarTest, RedrawsOneLineOnATerminal) {
  std::ostringstream out;
  ProgressBar bar("turns", 1200, Screen(100), out, kStart);
  bar.Update(600, "hit rate 50 %", kStart);
  EXPECT_EQ(ForTerminal(out.str()),
            "\r\x1b[Kturns ############............  50 % 600/1,200  hit rate 50 %");
}

TEST(ProgressBarTest, DrawsAtMostTenTimesASecond) {
  std::ostringstream out;
  ProgressBar bar("turns", 100, Screen(100), out, kStart);
  for (int ms = 0; ms < 1000; ++ms) bar.Update(ms / 10, "", kStart + absl::Milliseconds(ms));
  size_t drawings = 0;
  for (char c : ForTerminal(out.str())) drawings += c == '\r' ? 1 : 0;
  EXPECT_EQ(drawings, 10u);
}

TEST(ProgressBarTest, WritesOccasionalPlainLinesToAFile) {
  std::ostringstream out;
  ProgressBar bar("turns", 100, kFile, out, kStart);
  for (int s = 0; s <= 12; ++s) bar.Update(s, "", kStart + absl::Seconds(s));
  bar.Clear();
  EXPECT_EQ(out.str(), "turns   5 % 5/100\nturns  10 % 10/100\n");
}

TEST(ProgressBarTest, AShortJobWritesNothingToAFile) {
  std::ostringstream out;
  ProgressBar bar("turns", 2, kFile, out, kStart);
  bar.Update(1, "", kStart);
  bar.Update(2, "", kStart + absl::Seconds(1));
  bar.Clear();
  EXPECT_EQ(out.str(), "");
}

TEST(ProgressBarTest, ALineNeverWraps) {
  std::ostringstream out;
  Terminal terminal = Screen(40);
  terminal.unicode = true;
  ProgressBar bar("turns", 100, terminal, out, kStart);
  bar.Update(100, std::string(200, 'x'), kStart);
  size_t characters = 0;
  for (unsigned char c : ForTerminal(out.str())) characters += (c & 0xC0) != 0x80 ? 1 : 0;
  EXPECT_EQ(characters, 39u + 4u);  // The carriage return and the three bytes that clear the line.
}

TEST(ProgressBarTest, ClearsItsLine) {
  std::ostringstream out;
  ProgressBar bar("turns", 0, Screen(100), out, kStart);
  bar.Update(0, "", kStart);
  EXPECT_THAT(out.str(), HasSubstr("100 % 0/0"));
  bar.Clear();
  EXPECT_THAT(ForTerminal(out.str()), EndsWith("\r\x1b[K"));
}

TEST(ProgressBarTest, SaysWhenADrawingIsDue) {
  std::ostringstream out;
  ProgressBar bar("turns", 10, Screen(100), out, kStart);
  EXPECT_TRUE(bar.Due(kStart));
  bar.Update(1, "", kStart);
  EXPECT_FALSE(bar.Due(kStart + absl::Milliseconds(99)));
  EXPECT_TRUE(bar.Due(kStart + absl::Milliseconds(100)));
}

}  // namespace
}  // namespace pagoda
