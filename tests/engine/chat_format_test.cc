// Conversations, compared with the templates of tests/golden/text/chat.json.
#include "engine/text/chat_format.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

using nlohmann::json;

constexpr absl::CivilDay kToday(2025, 3, 9);

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

// Whether ChatFormat refuses messages that the template renders, because the template skips a
// message or writes an unknown role.
bool IsStricter(const std::string& format, const std::vector<ChatMessage>& messages) {
  for (size_t i = 1; i < messages.size(); ++i) {
    if (format != "qwen2.5" && format != "qwen3" && format != "llama3" &&
        messages[i].role == "system") {
      return true;
    }
  }
  return format == "mistral_v7" &&
         (messages[0].role == "assistant" || (messages.size() == 2 && messages[0].role == "user"));
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
      const absl::StatusOr<std::string> prompt = format->Render(messages, kToday);
      if (conversation["prompt"].is_null() || IsStricter(name, messages)) {
        EXPECT_EQ(ReasonOf(prompt.status()), Reason::kInvalidPrompt);
      } else {
        ASSERT_TRUE(prompt.ok()) << prompt.status();
        EXPECT_EQ(*prompt, conversation["prompt"].get<std::string>());
      }
    }
  }
}

TEST(ChatFormatTest, WithoutATemplateTheVocabularyDecides) {
  const std::unique_ptr<Tokenizer> qwen = LoadKind("qwen");
  const absl::StatusOr<ChatFormat> format = ChatFormat::From({}, *qwen);
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_EQ(format->name(), "ChatML");
  EXPECT_EQ(*format->Render(std::vector<ChatMessage>{{"user", "Hi"}}, kToday),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const absl::Status status = ChatFormat::From({}, *LoadKind("gpt2")).status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint);
  EXPECT_TRUE(absl::StrContains(status.message(), "Llama 3")) << status;
}

TEST(ChatFormatTest, RefusesWhatItDoesNotKnow) {
  const std::unique_ptr<Tokenizer> qwen = LoadKind("qwen");
  for (const char* text : {"{{ messages }}", "<|im_start|>user<|im_sep|>", "[INST] <<SYS>>",
                           "<|start_header_id|>", "<start_of_turn>"}) {
    const absl::Status status = ChatFormat::From({text, "", ""}, *qwen).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), "ChatML (Qwen), Llama 3, Mistral, Gemma"));
  }
}

TEST(ChatFormatTest, RefusesMessagesByName) {
  const ChatFormat format = *ChatFormat::From({}, *LoadKind("qwen"));
  const auto refused = [&](std::vector<ChatMessage> messages) {
    const absl::StatusOr<std::string> prompt = format.Render(messages, kToday);
    EXPECT_EQ(ReasonOf(prompt.status()), Reason::kInvalidPrompt);
    return std::string(prompt.status().message());
  };
  refused({});
  refused({{"user", "a"}, {"assistant", "b"}});
  refused({{"user", "\xFF"}});
  EXPECT_TRUE(absl::StrContains(refused({{"tool", "a"}, {"user", "b"}}), "tool"));
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
      {"chat_template",
       {{{"name", "tools"}, {"template", "{{ tools }}"}},
        {{"name", "default"}, {"template", "{{ bos_token }}<|start_header_id|><|eot_id|>"}}}}};
  write("tokenizer_config.json", config.dump());
  absl::StatusOr<ChatFormat> format = ChatFormat::Load(folder.string(), *llama3);
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_TRUE(absl::StartsWith(*format->Render(std::vector<ChatMessage>{{"user", "Hi"}}, kToday),
                               "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi"));
  write("chat_template.jinja", "{{ other }}");
  EXPECT_FALSE(ChatFormat::Load(folder.string(), *llama3).ok());
  write("tokenizer_config.json", "[");
  EXPECT_EQ(ReasonOf(ChatFormat::Load(folder.string(), *llama3).status()),
            Reason::kInvalidCheckpoint);
}

}  // namespace
}  // namespace pagoda
