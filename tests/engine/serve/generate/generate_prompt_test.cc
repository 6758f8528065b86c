// Prompts for a model whose text parts come from a GGUF file.
#include "engine/serve/generate/generate_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/text/model_text.h"

namespace pagoda::server {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

TEST(GeneratePromptTest, ATextEndsAtEveryEndTokenOfTheVocabulary) {
  const ModelText text = ModelText::Load(absl::StrCat(GOLDEN_MODEL, "/../text_gguf/bytes.gguf"));
  ASSERT_TRUE(text.tokenizer.ok()) << text.tokenizer.status();
  const Tokenizer& tokenizer = **text.tokenizer;
  // The file's own end token, and one that only its text tells.
  ASSERT_EQ(tokenizer.eos_token(), tokenizer.Find("<|end|>"));
  const TokenId ends[] = {*tokenizer.Find("<|end|>"), *tokenizer.Find("<|im_end|>")};
  v1::GenerateRequest request;
  request.add_stop_tokens(3);
  request.set_prompt_text("Hello");
  auto prompt = ReadPrompt(request, text, ModelConfig(), absl::Now());
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->stop_tokens, IsSupersetOf(ends));
  EXPECT_THAT(prompt->stop_tokens, Contains(3));
  EXPECT_EQ(prompt->tokens.front(), tokenizer.bos_token());

  request.clear_prompt_text();
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content("Hello");
  prompt = ReadPrompt(request, text, ModelConfig(), absl::Now());
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->stop_tokens, IsSupersetOf(ends));
  EXPECT_EQ(prompt->tokens.front(), tokenizer.Find("<|im_start|>"));

  // Token ids end where the request says.
  request.clear_messages();
  request.add_prompt_tokens(1);
  prompt = ReadPrompt(request, text, ModelConfig(), absl::Now());
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->stop_tokens, ElementsAre(3));
}

}  // namespace
}  // namespace pagoda::server
