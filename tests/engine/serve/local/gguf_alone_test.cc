// A GGUF file alone is a whole model: configuration, weights, tokenizer and chat template.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/serve/local/local_model.h"
#include "tests/engine/text/small_vocabulary.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;

class GgufAloneTest : public testing::Test {
 protected:
  GgufAloneTest() {
    std::ifstream in(GoldenDir("llama3_tiny_f16_gguf") + "/model.gguf", std::ios::binary);
    const std::string content(std::istreambuf_iterator<char>(in), {});
    std::ofstream(file_, std::ios::binary) << vocabulary_.AddTo(content);
  }
  ~GgufAloneTest() override { std::filesystem::remove(file_); }

  const std::filesystem::path file_ = std::filesystem::path(testing::TempDir()) / "alone.gguf";
  const SmallVocabulary vocabulary_ = SmallVocabulary::Chat();
};

TEST_F(GgufAloneTest, TakesTextAndConversations) {
  LocalModel model(LocalOptions(file_.string(), 128));
  const ModelPrompt text = Require(model.answers.ReadText("hi\n"));
  EXPECT_THAT(text.tokens, ElementsAre(vocabulary_.IdOf("hi"), vocabulary_.IdOf("\u010A")));
  const std::vector<ChatMessage> messages = {{.role = "user", .content = "hi"}};
  const ModelPrompt chat = Require(model.answers.ReadConversation(messages));
  EXPECT_EQ(chat.tokens.front(), vocabulary_.IdOf("<|im_start|>"));
  EXPECT_THAT(chat.tokens,
              AllOf(Contains(vocabulary_.IdOf("hi")), Contains(vocabulary_.IdOf("<|im_end|>"))));
  // The file names no end token, but its vocabulary has one.
  EXPECT_THAT(text.stop_tokens, Contains(vocabulary_.IdOf("<|im_end|>")));
  EXPECT_THAT(chat.stop_tokens, Contains(vocabulary_.IdOf("<|im_end|>")));
  std::string streamed;
  const PromptAnswer answer = Require(model.answers.Answer(
      {.prompt = chat.tokens, .max_new_tokens = 8, .stop_tokens = chat.stop_tokens},
      {.on_token = [&](TokenId, const std::string& piece) { streamed += piece; }}));
  EXPECT_EQ(answer.tokens.size(), 8);
  EXPECT_EQ(answer.text, streamed);
}

}  // namespace
}  // namespace pagoda
