#include "pools/store/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
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
