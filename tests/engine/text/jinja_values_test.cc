// A template's input, and values at the edges of their types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/text/jinja/template.h"

namespace pagoda::jinja {
namespace {

using ::testing::HasSubstr;
using Form = Field::Form;

std::string Rendered(const std::string& source, const TemplateInput& input = {}) {
  const absl::StatusOr<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) return absl::StrCat("error: ", parsed.status().message());
  const absl::StatusOr<std::string> text = parsed->Render(input);
  if (text.ok()) return *text;
  EXPECT_EQ(ReasonOf(text.status()), Reason::kInvalidPrompt);
  return absl::StrCat("error: ", text.status().message());
}

std::string RenderedJson(const std::string& source, const std::string& json) {
  TemplateInput input;
  input.variables = {{"x", Form::kJson, json}};
  return Rendered(source, input);
}

TEST(JinjaValuesTest, JsonKeepsTheOrderOfKeysAndTheLastOfEqualOnes) {
  EXPECT_EQ(RenderedJson("{{ x|tojson }}", R"({"b": 1, "a": {"d": [], "c": {}}, "b": 2})"),
            R"({"b": 2, "a": {"d": [], "c": {}}})");
  EXPECT_EQ(RenderedJson("{{ x }}", R"([1, -2, 3.0, 1e400, true, null, "\u00e9\ud83d\ude42"])"),
            "error: x is not valid JSON");
  EXPECT_EQ(RenderedJson("{{ x }}", R"([1, -2, 3.0, true, null, "\u00e9\ud83d\ude42"])"),
            "[1, -2, 3.0, True, None, 'é🙂']");
}

TEST(JinjaValuesTest, IntegersOf64BitsAreExact) {
  EXPECT_EQ(RenderedJson("{{ x }} {{ x - 1 }}", "18446744073709551615"),
            "18446744073709551615 18446744073709551614");
  EXPECT_EQ(RenderedJson("{{ x }} {{ -x }}", "-9223372036854775808"),
            "-9223372036854775808 9223372036854775808");
  EXPECT_THAT(RenderedJson("{{ x + 1 }}", "18446744073709551615"), HasSubstr("too large"));
  EXPECT_THAT(RenderedJson("{{ x * x }}", "18446744073709551615"), HasSubstr("too large"));
  EXPECT_THAT(Rendered("{{ 2 ** 64 }}"), HasSubstr("too large"));
  EXPECT_THAT(Rendered("{{ 2 ** 1000000000 }}"), HasSubstr("too large"));
  EXPECT_EQ(Rendered("{{ 1 ** 1000000000 }}{{ (-1) ** 999999999 }}{{ 0 ** 0 }}"), "1-11");
  EXPECT_THAT(Rendered("{{ 18446744073709551616 }}"), HasSubstr("error: "));
}

TEST(JinjaValuesTest, JsonNestsBoundedly) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(RenderedJson("{{ x|length }}", nested(90)), "1");
  EXPECT_THAT(RenderedJson("{{ x|length }}", nested(100000)), HasSubstr("nests too deeply"));
}

TEST(JinjaValuesTest, AMemberReplacesAnEarlierField) {
  TemplateInput input;
  input.messages = {{{"role", Form::kText, "user"},
                     {"content", Form::kText, "a"},
                     {"fields", Form::kMembers, R"({"content": ["b"], "n": 1})"}}};
  input.variables = {{"mode", Form::kText, "slow"}, {"more", Form::kMembers, R"({"mode": 7})"}};
  EXPECT_EQ(Rendered("{{ messages }}{{ mode }}{{ tools }}", input),
            "[{'role': 'user', 'content': ['b'], 'n': 1}]7None");
}

TEST(JinjaValuesTest, NamesWhatCannotBeRead) {
  TemplateInput input;
  input.messages = {{{"role", Form::kText, "user"}}, {{"fields", Form::kMembers, "{,}"}}};
  EXPECT_EQ(Rendered("x", input), "error: messages[1].fields is not valid JSON");
  input.messages = {{{"content", Form::kText, "\xC3"}}};
  EXPECT_EQ(Rendered("x", input), "error: messages[0].content is not valid UTF-8");
  input.messages = {};
  input.tools = {"{}", "[]"};
  EXPECT_EQ(Rendered("x", input), "error: tools[1] is not a JSON object");
}

TEST(JinjaValuesTest, LongTextsOfManyBytesPerCharacterAreCutByCharacters) {
  TemplateInput input;
  input.variables = {{"x", Form::kText, "aé日🙂"}};
  EXPECT_EQ(Rendered("{{ x[1] }}{{ x[-1] }}{{ x[1:3] }}{{ x[::-1] }}{{ x|length }}", input),
            "é🙂é日🙂日éa4");
  EXPECT_EQ(
      Rendered("{{ x.find('日') }}{{ x.center(8, 'é') }}{{ x|truncate(3, true, '', 0) }}", input),
      "2ééaé日🙂ééaé日");
}

TEST(JinjaValuesTest, NumbersThatAreNoneDoNotBreakOrders) {
  EXPECT_EQ(Rendered("{{ ['nan'|float, 1, 'nan'|float, 0]|sort|length }}"), "4");
  EXPECT_EQ(Rendered("{% set n = 'nan'|float %}{{ n == n }}{{ n < 1 }}{{ n >= 1 }}"),
            "FalseFalseFalse");
}

TEST(JinjaValuesTest, AGeneratorIsReadOnce) {
  EXPECT_EQ(Rendered("{% set g = [1, 2, 3]|map('string') %}{{ g|first }}{{ g|join }}{{ g|list }}"),
            "123[]");
}

}  // namespace
}  // namespace pagoda::jinja
