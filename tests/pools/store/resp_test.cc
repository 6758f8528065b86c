#include "pools/store/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace pagoda::resp {
namespace {

Value Parsed(const std::string& bytes) {
  auto parsed = Parse(bytes);
  EXPECT_TRUE(parsed.ok() && parsed->has_value()) << bytes;
  if (!parsed.ok() || !parsed->has_value()) return {};
  EXPECT_EQ((*parsed)->bytes, bytes.size());
  return (*parsed)->value;
}

TEST(RespTest, ParsesEachKind) {
  EXPECT_TRUE(Parsed("+OK\r\n").is_text("OK"));
  EXPECT_EQ(Parsed("-ERR no\r\n").kind, Kind::kError);
  EXPECT_EQ(Parsed("-ERR \x1b[2J\r2026 forged\xff\r\n").text, "ERR \\u001b[2J\\r2026 forged\\xff");
  EXPECT_EQ(Parsed("$2\r\n\x1b\xff\r\n").text, "\x1b\xff") << "a value stays as it is";
  EXPECT_EQ(Parsed("-ERR no\r\n").text, "ERR no");
  EXPECT_EQ(Parsed(":-42\r\n").integer, -42);
  EXPECT_EQ(Parsed("$-1\r\n").kind, Kind::kNull);
  EXPECT_EQ(Parsed("*-1\r\n").kind, Kind::kNull);
  EXPECT_EQ(Parsed("$0\r\n\r\n").kind, Kind::kBulk);
  EXPECT_EQ(Parsed("$4\r\na\r\nb\r\n").text, "a\r\nb");
  const Value array = Parsed("*3\r\n:1\r\n*1\r\n$1\r\nx\r\n+y\r\n");
  ASSERT_EQ(array.elements.size(), 3u);
  EXPECT_EQ(array.elements[1].elements[0].text, "x");
  EXPECT_EQ(array.elements[2].text, "y");
}

TEST(RespTest, EachBeginningOfAValueIsIncomplete) {
  const std::string bytes = "*3\r\n:12\r\n$5\r\nhello\r\n*1\r\n-ERR\r\n";
  for (size_t size = 0; size < bytes.size(); ++size) {
    auto parsed = Parse(absl::string_view(bytes).substr(0, size));
    ASSERT_TRUE(parsed.ok()) << size;
    EXPECT_FALSE(parsed->has_value()) << size;
  }
  auto longer = Parse(bytes + "+next");
  EXPECT_EQ((*longer)->bytes, bytes.size()) << "bytes of the next value stay";
}

TEST(RespTest, RefusesWhatIsNotResp) {
  for (const std::string bytes :
       {"x\r\n", "hello", "$x\r\n", "$\r\n", "$-2\r\n", "$1\r\nab\r\n", ":1.5\r\n", ":\r\n",
        "*x\r\n", "$999999999999\r\n", "*2000000\r\n", "$+3\r\nabc\r\n", "$ 3\r\nabc\r\n",
        ":99999999999999999999\r\n"}) {
    EXPECT_FALSE(Parse(bytes).ok()) << bytes;
  }
  EXPECT_FALSE(Parse("+" + std::string(kMaxLineBytes, 'x')).ok()) << "a line without an end";
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "*1\r\n";
  EXPECT_FALSE(Parse(deep + ":1\r\n").ok()) << "nested too deep";
  std::string wide;
  for (int i = 0; i < 3; ++i) wide += "*1048576\r\n";
  EXPECT_FALSE(Parse(wide).ok()) << "more elements in all than the bound";
}

TEST(RespTest, WritesCommands) {
  std::string out;
  AppendCommand({"SET", "", "a\r\n"}, out);
  EXPECT_EQ(out, "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\na\r\n\r\n");
  EXPECT_EQ(Parsed(out).elements[2].text, "a\r\n");
}

// The scanner agrees with the parser, however the bytes come.
TEST(RespTest, TheScannerFindsTheEnds) {
  std::mt19937 random(2);
  const std::function<std::string(int)> value = [&](int depth) -> std::string {
    switch (random() % (depth > 3 ? 5 : 6)) {
      case 0:
        return "+ok\r\n";
      case 1:
        return "-ERR\r\n";
      case 2:
        return ":-12\r\n";
      case 3:
        return "$-1\r\n";
      case 4: {
        const std::string text(random() % 30, '\n');
        return absl::StrCat("$", text.size(), "\r\n", text, "\r\n");
      }
      default: {
        const uint32_t count = random() % 4;
        std::string array = absl::StrCat("*", count, "\r\n");
        for (uint32_t i = 0; i < count; ++i) array += value(depth + 1);
        return array;
      }
    }
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string whole = value(0);
    const std::string bytes = whole + "+next\r\n";
    Scanner scanner;
    for (size_t size = random() % 3; true; size += 1 + random() % 5) {
      size = std::min(size, bytes.size());
      const absl::StatusOr<bool> is_complete =
          scanner.Scan(absl::string_view(bytes).substr(0, size));
      ASSERT_TRUE(is_complete.ok());
      ASSERT_EQ(*is_complete, size >= whole.size()) << bytes;
      if (*is_complete) break;
    }
    EXPECT_EQ(scanner.end(), whole.size());
    EXPECT_EQ((*Parse(bytes))->bytes, whole.size());
  }
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "*1\r\n";
  EXPECT_FALSE(Scanner().Scan(deep).ok());
  EXPECT_FALSE(Scanner().Scan("*1048576\r\n*1048576\r\n").ok());
}

TEST(RespTest, RandomBytesAreParsedOrRefused) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (uint32_t i = random() % 24; i > 0; --i) bytes += "+-:$*\r\n0129ab"[random() % 13];
    auto parsed = Parse(bytes);
    const size_t taken = parsed.ok() && parsed->has_value() ? (*parsed)->bytes : 0;
    EXPECT_LE(taken, bytes.size());
  }
}

}  // namespace
}  // namespace pagoda::resp
