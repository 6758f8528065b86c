// Templates, compared with what transformers renders from them (tests/golden/chat_templates).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/text/jinja/template.h"

namespace pagoda::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::CivilSecond kNow(2026, 3, 5, 14, 7, 9);

Json Golden(const std::string& name) {
  std::ifstream in(absl::StrCat(PAGODA_GOLDEN_DIR, "/chat_templates/", name));
  Json golden = Json::parse(in);
  EXPECT_EQ(golden["now"], "2026-03-05 14:07:09");
  return golden;
}

// The text that a list of lines' numbers means.
std::string TextOf(const Json& lines, const Json& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "\n",
                    lines[numbers[i].get<size_t>()].get_ref<const std::string&>());
  }
  return text;
}

TemplateInput InputOf(const Json& variables) {
  TemplateInput input;
  input.now = kNow;
  for (const auto& [name, value] : variables.items()) {
    if (name == "messages") {
      for (const Json& message : value) {
        input.messages.push_back({{"message", Field::Form::kMembers, message.dump()}});
      }
    } else if (name == "tools") {
      for (const Json& tool : value) input.tools.push_back(tool.dump());
    } else {
      input.variables.push_back({name, Field::Form::kJson, value.dump()});
    }
  }
  return input;
}

// Null in the golden file: the template refuses the conversation, or fails on it.
void Check(const absl::StatusOr<std::string>& text, const Json& lines, const Json& expected) {
  if (expected.is_null()) {
    EXPECT_FALSE(text.ok()) << *text;
    if (text.ok()) return;
    // The other reason: the template uses a filter that does not exist.
    EXPECT_TRUE(ReasonOf(text.status()) == Reason::kInvalidPrompt ||
                ReasonOf(text.status()) == Reason::kInvalidCheckpoint)
        << text.status();
    EXPECT_NE(text.status().message().find("in line "), std::string::npos) << text.status();
  } else {
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, TextOf(lines, expected));
  }
}

TEST(JinjaGoldenTest, PublicModelsTemplatesWriteWhatTransformersRenders) {
  const Json golden = Golden("cases.json");
  ASSERT_GE(golden["templates"].size(), 40);
  size_t prompts = 0;
  for (const Json& example : golden["templates"]) {
    const absl::StatusOr<Template> parsed =
        Template::Parse(TextOf(golden["lines"], example["template"]));
    ASSERT_TRUE(parsed.ok()) << example["name"] << parsed.status();
    for (const auto& [name, expected] : example["prompts"].items()) {
      SCOPED_TRACE(absl::StrCat(example["name"].get<std::string>(), ", ", name));
      Check(parsed->Render(InputOf(golden["conversations"][name])), golden["lines"], expected);
      prompts += expected.is_null() ? 0 : 1;
    }
  }
  EXPECT_GE(prompts, 1000);
}

TEST(JinjaGoldenTest, EachFeatureIsThatOfJinja) {
  const Json golden = Golden("features.json");
  ASSERT_GE(golden["cases"].size(), 180);
  for (const Json& example : golden["cases"]) {
    const auto source = example["template"].get<std::string>();
    SCOPED_TRACE(source);
    const absl::StatusOr<Template> parsed = Template::Parse(source);
    ASSERT_EQ(parsed.ok(), !example.contains("parses")) << parsed.status();
    if (!parsed.ok()) {
      EXPECT_EQ(ReasonOf(parsed.status()), Reason::kInvalidCheckpoint);
      continue;
    }
    const absl::StatusOr<std::string> text = parsed->Render(InputOf(golden["variables"]));
    if (example["text"].is_null()) {
      EXPECT_FALSE(text.ok()) << *text;
    } else {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, example["text"].get<std::string>());
    }
  }
}

}  // namespace
}  // namespace pagoda::jinja
