#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace pagoda {
namespace {

TEST(PrintableTest, PlainTextStaysInEveryLanguage) {
  for (const std::string_view text : {"", "plain text", "a\\b \"c\"", "Größe", "日本語", "שלום",
                                      "مرحبا", "\U0001f600", "\u00a0", "\U0010ffff"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, NothingReachesATerminalThatItObeys) {
  struct Case {
    std::string_view text;
    std::string_view printable;
  };
  for (const Case& c : {
           Case{"a\r\nb\tc", "a\\r\\nb\\tc"},
           Case{"\x1b[2J", "\\u001b[2J"},
           Case{std::string_view("a\0b", 3), "a\\u0000b"},
           Case{"\x7f\b", "\\u007f\\u0008"},
           Case{"\u009b31m", "\\u009b31m"},  // The one-byte form of ESC [.
           Case{"\x9b", "\\x9b"},            // The same, for a terminal without UTF-8.
           Case{"\u0085\u2028\u2029", "\\u0085\\u2028\\u2029"},
           Case{"a\u202egnp\u202c", "a\\u202egnp\\u202c"},
           Case{"\u202a\u202b\u202d", "\\u202a\\u202b\\u202d"},
           Case{"\u2066\u2067\u2068\u2069", "\\u2066\\u2067\\u2068\\u2069"},
           Case{"\u200e\u200f\u061c", "\\u200e\\u200f\\u061c"},
           Case{"\xc0\x9b", "\\xc0\\x9b"},                    // A long form of ESC.
           Case{"\xe0\x80\x9b", "\\xe0\\x80\\x9b"},           // A longer one.
           Case{"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // A surrogate.
           Case{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // Beyond Unicode.
           Case{"\xe2\x80", "\\xe2\\x80"},                    // A cut character.
           Case{"\xe2\x80\x1b", "\\xe2\\x80\\u001b"},         // A character cut by ESC.
           Case{"\xff\xfe", "\\xff\\xfe"},
       }) {
    EXPECT_EQ(Printable(c.text), c.printable);
  }
}

TEST(PrintableTest, ItsOwnTextStays) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string printable = Printable(all);
  for (const char c : printable) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_EQ(Printable(printable), printable);
}

}  // namespace
}  // namespace pagoda
