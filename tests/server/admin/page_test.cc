#include "server/admin/page.h"

#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

TEST(PageTest, SizesHaveADefaultAndAMost) {
  EXPECT_EQ(PageSize(0), 100u);
  EXPECT_EQ(PageSize(1), 1u);
  EXPECT_EQ(PageSize(1000), 1000u);
  EXPECT_EQ(PageSize(1001), 1000u);
  EXPECT_EQ(PageSize(std::numeric_limits<uint32_t>::max()), 1000u);
}

TEST(PageTest, ATokenIsItsStart) {
  for (const PageStart& start :
       {PageStart{}, PageStart{.major = 7}, PageStart{.major = 1, .minor = 2},
        PageStart{.major = std::numeric_limits<uint64_t>::max(),
        .minor = std::numeric_limits<uint64_t>::max()}}) {
    const auto parsed = ParsePageToken(PageToken(start));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, start);
  }
  EXPECT_EQ(*ParsePageToken(""), PageStart{});
}

TEST(PageTest, AnythingElseIsRefused) {
  const std::string token = PageToken({.major = 0xA, .minor = 2});
  const std::string tail = token.substr(1);
  for (const std::string& text :
       {std::string("x"), std::string("0"), absl::StrCat(token, "0"), tail, absl::StrCat("+", tail),
        absl::StrCat(" ", tail), absl::StrCat("0x", token.substr(2)), std::string(32, 'g'),
        std::string(32, 'A'), std::string(32, '\0')}) {
    EXPECT_EQ(ReasonOf(ParsePageToken(text).status()), Reason::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace pagoda::server
