#include "engine/serve/prompt/choice_text.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pagoda::server {
namespace {

class ChoiceTextTest : public ::testing::Test {
 protected:
  std::vector<TokenId> Encode(const std::string& text) {
    return *tokenizer_->Encode(text, SpecialTokens::kLeaveOut);
  }
  // The sum of the pieces for the tokens.
  static ChoicePiece Say(ChoiceText& choice, const std::vector<TokenId>& tokens) {
    ChoicePiece whole;
    for (const TokenId token : tokens) {
      const ChoicePiece piece = choice.Add({.token = token, .logprob = -1});
      whole.text += piece.text;
      whole.tokens.insert(whole.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      whole.logprobs.insert(whole.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
      if (piece.finish_reason != nullptr) whole.finish_reason = piece.finish_reason;
    }
    return whole;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ =
      *Tokenizer::Load(absl::StrCat(GOLDEN_TEXT, "/qwen/tokenizer.json"));
};

TEST_F(ChoiceTextTest, TheLastTokenGivesWhatWasKept) {
  const std::vector<TokenId> tokens = Encode("the end is nea");
  ChoiceText choice(tokenizer_.get(),
                    {.max_tokens = static_cast<uint32_t>(tokens.size()), .stop = {"near"}});
  const ChoicePiece whole = Say(choice, tokens);
  EXPECT_EQ(whole.text, "the end is nea");
  EXPECT_STREQ(whole.finish_reason, "length");
  EXPECT_FALSE(choice.stopped());
}

TEST_F(ChoiceTextTest, AStopStringEndsIt) {
  ChoiceText choice(tokenizer_.get(), {.max_tokens = 100, .stop = {"is n"}});
  const ChoicePiece whole = Say(choice, Encode("the end is near, is not it"));
  EXPECT_EQ(whole.text, "the end ");
  EXPECT_STREQ(whole.finish_reason, "stop");
  EXPECT_TRUE(choice.stopped());
}

TEST_F(ChoiceTextTest, AStopTokenIsNotPartOfTheText) {
  std::vector<TokenId> tokens = Encode("done");
  const TokenId stop = Encode("!").front();
  tokens.push_back(stop);
  ChoiceText choice(tokenizer_.get(), {.max_tokens = 100, .stop_tokens = {stop}, .logprobs = true});
  const ChoicePiece whole = Say(choice, tokens);
  EXPECT_EQ(whole.text, "done");
  EXPECT_EQ(whole.tokens, tokens);
  EXPECT_EQ(whole.logprobs.size(), tokens.size() - 1);
  EXPECT_STREQ(whole.finish_reason, "stop");
}

TEST_F(ChoiceTextTest, TextOffsetsAreInCharacters) {
  ChoiceText choice(tokenizer_.get(), {.max_tokens = 100, .logprobs = true});
  const std::vector<TokenId> tokens = Encode("\u00e4b");
  const ChoicePiece whole = Say(choice, tokens);
  ASSERT_GE(whole.logprobs.size(), 2u);
  EXPECT_EQ(whole.logprobs.front().text_offset, 0u);
  EXPECT_EQ(whole.logprobs.back().text_offset, 1u);
  EXPECT_EQ(whole.logprobs.back().text, "b");
}

TEST_F(ChoiceTextTest, WithoutATokenizerThereAreTokensAlone) {
  ChoiceText choice(nullptr, {.choice = 3, .max_tokens = 2, .logprobs = true});
  const ChoicePiece whole = Say(choice, {5, 6, 7});
  EXPECT_EQ(whole.text, "");
  EXPECT_EQ(whole.tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(whole.logprobs[0].text, "token_id:5");
  EXPECT_STREQ(whole.finish_reason, "length");
}

}  // namespace
}  // namespace pagoda::server
