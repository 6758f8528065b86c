// The text parts of a model's folder or file.
#include "engine/text/model_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "engine/text/chat/gguf_chat.h"
#include "tests/engine/fixtures/gguf_content.h"
#include "tests/engine/text/small_vocabulary.h"

namespace pagoda {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr char kTemplate[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fs::path Golden(const std::string& name) { return fs::path(PAGODA_GOLDEN_DIR) / name; }

class ModelTextTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "model_text";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path Copy(const fs::path& from, const std::string& name) {
    fs::copy_file(from, folder_ / name);
    return folder_ / name;
  }

  fs::path folder_;
};

TEST_F(ModelTextTest, AGgufFileAloneHasTokenizerAndTemplate) {
  const fs::path file = Copy(Golden("text_gguf/bytes.gguf"), "any name.gguf");
  for (const fs::path& model : {file, folder_}) {
    const ModelText text = ModelText::Load(model);
    ASSERT_TRUE(text.tokenizer.ok()) << text.tokenizer.status();
    ASSERT_TRUE(text.chat.ok()) << text.chat.status();
    EXPECT_THAT(text.chat->stop_tokens(), Contains(*(*text.tokenizer)->Find("<|im_end|>")));
    EXPECT_EQ((*text.tokenizer)->bos_token(), (*text.tokenizer)->Find("<|begin|>"));
  }
}

TEST_F(ModelTextTest, ATokenizerJsonBesideTheFileWins) {
  const fs::path file = Copy(Golden("text_gguf/bytes.gguf"), "model.gguf");
  Copy(Golden("text/llama3/tokenizer.json"), "tokenizer.json");
  for (const fs::path& model : {file, folder_}) {
    const ModelText text = ModelText::Load(model);
    ASSERT_TRUE(text.tokenizer.ok()) << text.tokenizer.status();
    EXPECT_FALSE((*text.tokenizer)->Find("<|im_end|>").has_value());
  }
}

TEST_F(ModelTextTest, OfTwoFilesNoneCounts) {
  Copy(Golden("text_gguf/bytes.gguf"), "a.gguf");
  const fs::path file = Copy(Golden("text_gguf/spaces.gguf"), "b.gguf");
  EXPECT_EQ(ReasonOf(ModelText::Load(folder_).tokenizer.status()), Reason::kInvalidCheckpoint);
  EXPECT_TRUE(ModelText::Load(file).tokenizer.ok());
}

TEST_F(ModelTextTest, AModelWithoutTextSaysSo) {
  const ModelText none = ModelText::Load(folder_);
  EXPECT_EQ(ReasonOf(none.tokenizer.status()), Reason::kInvalidArgument);
  EXPECT_EQ(ReasonOf(none.chat.status()), Reason::kInvalidArgument);
  std::ofstream(folder_ / "model.gguf") << GgufContent({}, {}, "");
  EXPECT_EQ(ReasonOf(ModelText::Load(folder_).tokenizer.status()), Reason::kInvalidArgument);
  std::ofstream(folder_ / "model.gguf") << "GGUF, but no more";
  EXPECT_EQ(ReasonOf(ModelText::Load(folder_).tokenizer.status()), Reason::kInvalidCheckpoint);
}

TEST_F(ModelTextTest, AnUnknownTokenizerIsNamed) {
  SmallVocabulary vocabulary = SmallVocabulary::BytePairs("of-tomorrow", {}, {});
  std::ofstream(folder_ / "model.gguf") << GgufContent(vocabulary.Keys(), {}, "");
  const ModelText text = ModelText::Load(folder_ / "model.gguf");
  EXPECT_EQ(ReasonOf(text.tokenizer.status()), Reason::kInvalidCheckpoint);
  EXPECT_THAT(std::string(text.tokenizer.status().message()), HasSubstr("'of-tomorrow'"));
  EXPECT_THAT(std::string(text.chat.status().message()), HasSubstr("'of-tomorrow'"));
}

class GgufChatTest : public testing::Test {
 protected:
  ChatSettings Settings() { return GgufChatSettings(vocabulary_.Metadata(), **vocabulary_.Make()); }

  SmallVocabulary vocabulary_ = SmallVocabulary::BytePairs("qwen2", {}, {});
};

TEST_F(GgufChatTest, GivesTheTextsOfTheTokensAround) {
  vocabulary_.AddToken("<begin>", SmallVocabulary::kControl);
  vocabulary_.AddToken("<end>", SmallVocabulary::kControl);
  vocabulary_.SetNumber("bos_token_id", 256);
  vocabulary_.SetNumber("eos_token_id", 257);
  vocabulary_.SetPlainText("tokenizer.chat_template", kTemplate);
  EXPECT_EQ(Settings().chat_template, kTemplate);
  EXPECT_EQ(Settings().bos_token, "<begin>");
  EXPECT_EQ(Settings().eos_token, "<end>");
}

TEST_F(GgufChatTest, ChoosesAmongNamedTemplates) {
  EXPECT_EQ(Settings().chat_template, std::nullopt);
  vocabulary_.SetPlainText("tokenizer.chat_template.tool_use", "tools");
  EXPECT_EQ(Settings().chat_template, "tools");
  vocabulary_.SetPlainText("tokenizer.chat_template.rag", "rag");
  EXPECT_EQ(Settings().chat_template, std::nullopt);
  vocabulary_.SetPlainText("tokenizer.chat_template.default", "default");
  EXPECT_EQ(Settings().chat_template, "default");
  EXPECT_EQ(Settings().tool_template, "tools");
  vocabulary_.SetPlainText("tokenizer.chat_template", kTemplate);
  EXPECT_EQ(Settings().chat_template, kTemplate);
}

TEST_F(GgufChatTest, TakesATemplateOfAnyLength) {
  const std::string text(100'000, 'x');
  vocabulary_.SetPlainText("tokenizer.chat_template", text);
  EXPECT_EQ(Settings().chat_template, text);
}

}  // namespace
}  // namespace pagoda
