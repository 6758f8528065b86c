#include "clients/command_line/terminal/printable_output.h"

#include <iostream>
#include <string>
#include <string_view>

#include "clients/command_line/terminal/terminal.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

constexpr std::string_view kName = "a\x1b[2J\r\u202eb";  // A client can call itself so.
constexpr std::string_view kShownName = "a\\u001b[2J\\r\\u202eb";

TEST(PrintableOutputTest, OnlyMarksBecomeControlSequences) {
  Terminal terminal;
  terminal.color = true;
  const std::string name(kName), shown(kShownName);
  EXPECT_EQ(ForTerminal(name + "\tx\n"), shown + "\tx\n");
  EXPECT_EQ(ForTerminal(Paint(terminal, Style::kBold, name) + name),
            "\x1b[1m" + shown + "\x1b[0m" + shown);
  EXPECT_EQ(ForTerminal(Paint(terminal, Style::kCyan, "x")), "\x1b[36mx\x1b[0m");
  EXPECT_EQ(ForTerminal(std::string(kClearLine) + std::string(kClearScreen)),
            "\r\x1b[K\x1b[H\x1b[2J");
  EXPECT_EQ(ForTerminal("\xffh\xffz\xff"), "\\xffh\\xffz\\xff") << "no such marks";
}

TEST(PrintableOutputTest, StandardStreamsAreForTerminalsWhileItLives) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    const PrintableOutput output;
    Print("%-3s|%d\n", kName, 7);
    std::cerr << kName;
    // The bytes of one character come one by one.
    for (const char c : std::string_view("é\u202e")) std::cout << c;
    std::cout << std::endl;
    for (int line = 0; line < 10'000; ++line) std::cout << "日本" << kName << '\n';
    EXPECT_TRUE(std::cout.good());
  }
  std::cout << "\x1b" << std::flush;
  std::string expected = std::string(kShownName) + "|7\né\\u202e\n";
  for (int line = 0; line < 10'000; ++line) expected += "日本" + std::string(kShownName) + "\n";
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), expected + "\x1b");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), kShownName);
}

TEST(PrintableOutputTest, AFileGetsAnAnswerAsItIs) {
  ::testing::internal::CaptureStdout();
  {
    const PrintableOutput output;
    std::cout << kName;
    PrintAnswer(kName);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), std::string(kShownName) + std::string(kName));
}

}  // namespace
}  // namespace pagoda
