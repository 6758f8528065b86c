// The served page: complete, small, and with a matching policy.
#include "server/http/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/callers/tokens_file.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Policy() {
  for (const auto& [name, value] : StatusPage().headers) {
    if (name == "Content-Security-Policy") return value;
  }
  return "";
}
std::string SourceOf(const std::string& text) {
  const TokenDigest digest = DigestOf(text);
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(std::string(reinterpret_cast<const char*>(digest.data()), digest.size())),
      "'");
}
// The text between two markers, each of which occurs once.
std::string Between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t first = text.find(begin);
  EXPECT_EQ(text.find(begin, first + 1), std::string::npos) << begin;
  const size_t last = text.find(end, first);
  EXPECT_EQ(text.find(end, last + 1), std::string::npos) << end;
  return text.substr(first + begin.size(), last - first - begin.size());
}

TEST(StatusPageTest, IsOneSmallDocument) {
  const HttpResponse page = StatusPage();
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_LT(page.body.size(), 100'000u);
  EXPECT_EQ(page.body.rfind("</html>\n"), page.body.size() - 8);
  EXPECT_THAT(page.body, Not(HasSubstr("<!-- s"))) << "both places are taken";
}

TEST(StatusPageTest, ItsPolicyNamesItsStyleAndItsScript) {
  const std::string body = StatusPage().body;
  EXPECT_THAT(Policy(), HasSubstr("default-src 'none'"));
  EXPECT_THAT(Policy(),
              HasSubstr("script-src " + SourceOf(Between(body, "<script>", "</script>"))));
  EXPECT_THAT(Policy(), HasSubstr("style-src " + SourceOf(Between(body, "<style>", "</style>"))));
  EXPECT_THAT(Policy(), Not(HasSubstr("unsafe")));
}

TEST(StatusPageTest, NamesNothingElsewhere) {
  const std::string body = StatusPage().body;
  // The only address is the name of a namespace, which no browser fetches.
  const std::string without =
      std::regex_replace(body, std::regex("http://www.w3.org/2000/svg"), "");
  EXPECT_THAT(without, Not(HasSubstr("://")));
  EXPECT_THAT(body, Not(HasSubstr("@import")));
  EXPECT_THAT(body, Not(HasSubstr("url(")));
  EXPECT_FALSE(std::regex_search(body, std::regex("<[^>]* on[a-z]+=")))
      << "the policy allows no handlers in attributes";
  EXPECT_FALSE(std::regex_search(body, std::regex("<[^>]* style="))) << "nor styles";
}

}  // namespace
}  // namespace pagoda::server
