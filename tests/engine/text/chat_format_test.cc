// Conversations, compared with the templates of tests/golden/text/chat.json.
#include "engine/text/chat/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr absl::CivilSecond kNow(2025, 3, 9);

std::unique_ptr<Tokenizer> LoadKind(const std::string& kind) {
  return *Tokenizer::Load(absl::StrCat(PAGODA_GOLDEN_DIR, "/text/", kind, "/tokenizer.json"));
}

json Golden() {
  std::ifstream in(absl::StrCat(PAGODA_GOLDEN_DIR, "/text/chat.json"));
  return json::parse(in);
}

std::vector<ChatMessage> MessagesOf(const json& list) {
  std::vector<ChatMessage> messages;
  for (const json& message : list) {
    messages.push_back({message["role"], message["content"]});
  }
  return messages;
}

TEST(ChatFormatTest, WritesWhatTheTemplatesWrite) {
  const json golden = Golden();
  ASSERT_EQ(golden["formats"].size(), 10);
  for (const json& example : golden["formats"]) {
    const auto name = example["name"].get<std::string>();
    const std::unique_ptr<Tokenizer> tokenizer = LoadKind(example["tokenizer"]);
    const absl::StatusOr<ChatFormat> format =
        ChatFormat::From({example["template"], example["bos"], example["eos"]}, *tokenizer);
    ASSERT_TRUE(format.ok()) << name << format.status();
    EXPECT_FALSE(format->stop_tokens().empty());
    for (const json& conversation : example["cases"]) {
      SCOPED_TRACE(absl::StrCat(name, " ", conversation.dump()));
      const std::vector<ChatMessage> messages = MessagesOf(conversation["messages"]);
      const absl::StatusOr<std::string> prompt = format->Render({.messages = messages}, kNow);
      if (conversation["prompt"].is_null()) {
        EXPECT_EQ(ReasonOf(prompt.status()), Reason::kInvalidPrompt);
      } else {
        ASSERT_TRUE(prompt.ok()) << prompt.status();
        EXPECT_EQ(*prompt, conversation["prompt"].get<std::string>());
      }
    }
  }
}

std::string Rendered(const ChatFormat& format, const Conversation& conversation) {
  const absl::StatusOr<std::string> prompt = format.Render(conversation, kNow);
  return prompt.ok() ? *prompt : absl::StrCat("error: ", prompt.status().message());
}

TEST(ChatFormatTest, WithoutATemplateTheVocabularyDecides) {
  const std::unique_ptr<Tokenizer> qwen = LoadKind("qwen");
  const absl::StatusOr<ChatFormat> format = ChatFormat::From({}, *qwen);
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(format->name(), "ChatML");
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  EXPECT_EQ(Rendered(*format, {.messages = messages}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(format->stop_tokens(), Contains(*qwen->Find("<|im_end|>")));
  const absl::Status status = ChatFormat::From({}, *LoadKind("gpt2")).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no chat template"));
}

TEST(ChatFormatTest, RefusesATemplateThatIsNoProgram) {
  const std::unique_ptr<Tokenizer> qwen = LoadKind("qwen");
  const absl::Status status = ChatFormat::From({"a\n{% if %}", "", ""}, *qwen).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint);
  EXPECT_THAT(std::string(status.message()), HasSubstr("line 2"));
}

TEST(ChatFormatTest, RefusesMessagesByName) {
  const ChatFormat format = *ChatFormat::From({}, *LoadKind("qwen"));
  const auto refused = [&](std::vector<ChatMessage> messages) {
    const absl::Status status = format.Render({.messages = messages}, kNow).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidPrompt);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({}), HasSubstr("empty"));
  EXPECT_THAT(refused({{"user", "a"}, {"user", "\xFF"}}), HasSubstr("messages[1].content"));
  EXPECT_THAT(refused({{"user", "a", "{"}}), HasSubstr("messages[0].fields is not valid JSON"));
  EXPECT_THAT(refused({{"user", "a", "[]"}}), HasSubstr("messages[0].fields is not a JSON object"));
}

TEST(ChatFormatTest, TheTemplateGetsEveryFieldToolAndVariable) {
  const ChatFormat format = *ChatFormat::From(
      {.chat_template = "{{ messages|tojson }}{{ tools|tojson }}{{ documents }}{{ mode }}"
                        "{{ add_generation_prompt }}{{ bos_token }}{{ pad_token }}{{ x_token }}",
       .bos_token = "<s>",
       .eos_token = "",
       .tool_template = std::nullopt,
       .other_tokens = {{"pad_token", "<pad>"}}},
      *LoadKind("qwen"));
  EXPECT_EQ(format.name(), "its own template");
  const std::vector<ChatMessage> messages = {
      {"assistant", "", R"({"tool_calls": [{"b": 1, "a": 2.0}], "content": null})"}};
  const std::vector<std::string> tools = {R"({"type": "function", "name": "f"})", "{}"};
  EXPECT_EQ(Rendered(format, {.messages = messages,
                              .tools = tools,
                              .template_kwargs = R"({"mode": "fast", "messages": 7})"}),
            R"([{"role": "assistant", "content": null, "tool_calls": [{"b": 1, "a": 2.0}]}])"
            R"([{"type": "function", "name": "f"}, {}]NonefastTrue<s><pad>)");
  EXPECT_EQ(Rendered(format, {.messages = std::vector<ChatMessage>{{"user", "a"}},
                              .template_kwargs = R"({"add_generation_prompt": false})"}),
            R"([{"role": "user", "content": "a"}]nullNoneFalse<s><pad>)");
  EXPECT_THAT(Rendered(format, {.messages = messages, .tools = std::vector<std::string>{"{", "7"}}),
              HasSubstr("tools[0] is not valid JSON"));
  EXPECT_THAT(
      Rendered(format, {.messages = messages, .tools = std::vector<std::string>{"{}", "7"}}),
      HasSubstr("tools[1] is not a JSON object"));
  EXPECT_THAT(Rendered(format, {.messages = messages, .template_kwargs = "[]"}),
              HasSubstr("chat_template_kwargs is not a JSON object"));
}

TEST(ChatFormatTest, ReasoningHasEveryNameThatTemplatesRead) {
  const ChatFormat format =
      *ChatFormat::From({"{{ messages[0].thinking }}|{{ messages[0].reasoning_content }}", "", ""},
                        *LoadKind("qwen"));
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const std::vector<ChatMessage> messages = {
        {"assistant", "a", absl::StrCat("{\"", name, "\": \"because\"}")}};
    EXPECT_EQ(Rendered(format, {.messages = messages}), "because|because") << name;
  }
}

TEST(ChatFormatTest, TheTokensThatEndAnAnswerAreThoseOfTheTemplate) {
  const std::unique_ptr<Tokenizer> llama3 = LoadKind("llama3");
  const auto stops = [&](const std::string& text, const std::string& eos) {
    return ChatFormat::From({text, "", eos}, *llama3)->stop_tokens();
  };
  const TokenId turn = *llama3->Find("<|eot_id|>");
  const TokenId end = *llama3->Find("<|end_of_text|>");
  EXPECT_THAT(stops("{{ '<|eot_id|>' }}", "<|end_of_text|>"), UnorderedElementsAre(end, turn));
  EXPECT_THAT(stops("{{ eos_token }}", "<|eot_id|>"), UnorderedElementsAre(end, turn));
  EXPECT_THAT(stops("{{ eos_token }}", "<absent>"), UnorderedElementsAre(end));
}

TEST(ChatFormatTest, ReadsTheModelsFolder) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "chat_format_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::unique_ptr<Tokenizer> llama3 = LoadKind("llama3");
  EXPECT_FALSE(ChatFormat::Load(folder.string(), *llama3).ok());
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
  };
  const json config = {
      {"bos_token", {{"content", "<|begin_of_text|>"}}},
      {"eos_token", "<|eot_id|>"},
      {"unk_token", "<?>"},
      {"chat_template",
       {{{"name", "tool_use"}, {"template", "{{ tools|length }} tools"}},
        {{"name", "default"},
         {"template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"}}}}};
  write("tokenizer_config.json", config.dump());
  absl::StatusOr<ChatFormat> format = ChatFormat::Load(folder.string(), *llama3);
  ASSERT_TRUE(format.ok()) << format.status();
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  EXPECT_EQ(Rendered(*format, {.messages = messages}), "<|begin_of_text|>Hi<|eot_id|><?>");
  const std::vector<std::string> tools = {"{}", "{}"};
  EXPECT_EQ(Rendered(*format, {.messages = messages, .tools = tools}), "2 tools");
  write("chat_template.jinja", "{{ 'other' }}");
  EXPECT_EQ(Rendered(*ChatFormat::Load(folder.string(), *llama3), {.messages = messages}), "other");
  write("chat_template.jinja", "{{ other");
  EXPECT_FALSE(ChatFormat::Load(folder.string(), *llama3).ok());
  write("tokenizer_config.json", "[");
  EXPECT_EQ(ReasonOf(ChatFormat::Load(folder.string(), *llama3).status()),
            Reason::kInvalidCheckpoint);
}

}  // namespace
}  // namespace pagoda
