// The vocabulary of a GGUF file: its keys, their defaults and what is refused.
#include "engine/text/tokenizer/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/engine/text/small_vocabulary.h"

namespace pagoda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

SmallVocabulary Pairs() {
  return SmallVocabulary::BytePairs("gpt-2", {"he", "ll", "hell"}, {"h e", "l l", "he ll"});
}

SmallVocabulary Pieces() {
  return SmallVocabulary::SentencePiece({{"▁", -1}, {"a", -2}, {"b", -3}, {"ab", -0.5}});
}

std::vector<TokenId> Encode(SmallVocabulary& vocabulary, const std::string& text,
                            SpecialTokens around = SpecialTokens::kKeep) {
  const auto tokenizer = vocabulary.Make();
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto ids = (*tokenizer)->Encode(text, around);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return *ids;
}

TEST(GgufVocabularyTest, RefusesByNameWhatIsWrong) {
  struct Case {
    SmallVocabulary vocabulary;
    std::function<void(SmallVocabulary&)> change;
    const char* named;
  };
  const std::vector<Case> cases = {
      {Pairs(), [](auto& v) { v.SetText("model", "bert"); }, "'bert'"},
      {Pairs(), [](auto& v) { v.SetText("model", "t5"); }, "'t5'"},
      {Pairs(), [](auto& v) { v.SetText("model", "rwkv"); }, "'rwkv'"},
      {Pairs(), [](auto& v) { v.SetNumber("model", 1); }, "tokenizer.ggml.model"},
      {Pairs(), [](auto& v) { v.SetText("pre", "gpt-5"); }, "'gpt-5'"},
      {Pairs(), [](auto& v) { v.SetNumber("pre", 1); }, "tokenizer.ggml.pre"},
      {Pairs(), [](auto& v) { v.Remove("tokens"); }, "tokenizer.ggml.tokens"},
      {Pairs(), [](auto& v) { v.SetTexts("tokens", {}); }, "tokenizer.ggml.tokens"},
      {Pairs(), [](auto& v) { v.SetIntegers("tokens", {1}); }, "tokenizer.ggml.tokens"},
      {Pairs(),
       [](auto& v) {
         v.SetTexts("tokens", {"a", "b", "a"});
       },
       "'a'"},
      {Pairs(),
       [](auto& v) {
         v.SetIntegers("token_type", {1, 1});
       },
       "tokenizer.ggml.token_type"},
      {Pairs(), [](auto& v) { v.SetText("token_type", "x"); }, "tokenizer.ggml.token_type"},
      {Pairs(), [](auto& v) { v.Remove("merges"); }, "tokenizer.ggml.merges"},
      {Pairs(), [](auto& v) { v.SetNumber("merges", 1); }, "tokenizer.ggml.merges"},
      {Pairs(), [](auto& v) { v.SetText("bos_token_id", "1"); }, "tokenizer.ggml.bos_token_id"},
      {Pairs(), [](auto& v) { v.SetText("add_bos_token", "1"); }, "tokenizer.ggml.add_bos_token"},
      {Pairs(), [](auto& v) { v.AddToken(std::string(1025, 'x'), SmallVocabulary::kControl); },
       "1025 bytes"},
      {Pieces(),
       [](auto& v) {
         v.SetFloats("scores", {1, 2});
       },
       "tokenizer.ggml.scores"},
      {Pieces(), [](auto& v) { v.AddToken("x", SmallVocabulary::kNormal, NAN); }, "NaN"},
      {Pieces(), [](auto& v) { v.SetText("add_space_prefix", "x"); }, "add_space_prefix"},
  };
  for (const Case& wrong : cases) {
    SmallVocabulary vocabulary = wrong.vocabulary;
    ASSERT_TRUE(vocabulary.Make().ok());
    wrong.change(vocabulary);
    const absl::Status status = vocabulary.Make().status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << wrong.named;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.named));
  }
}

TEST(GgufVocabularyTest, AFileWithoutAVocabularyTakesNoText) {
  for (const char* const model : {"none", "no_vocab", ""}) {
    SmallVocabulary vocabulary;
    vocabulary.SetText("model", model);
    EXPECT_EQ(ReasonOf(vocabulary.Make().status()), Reason::kInvalidArgument) << model;
  }
  EXPECT_EQ(ReasonOf(SmallVocabulary().Make().status()), Reason::kInvalidArgument);
}

TEST(GgufVocabularyTest, KeepsAnEmptyTokenApart) {
  SmallVocabulary vocabulary = Pairs();
  vocabulary.AddToken("", SmallVocabulary::kNormal);
  vocabulary.AddToken("", SmallVocabulary::kNormal);
  const auto tokenizer = vocabulary.Make();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Token(259), "[EMPTY_259]");
  EXPECT_EQ(*(*tokenizer)->Token(260), "[EMPTY_260]");
}

TEST(GgufVocabularyTest, AddsTheTokensAroundATextThatTheFileWants) {
  SmallVocabulary pairs = Pairs();
  const uint32_t hell = pairs.IdOf("hell");
  EXPECT_THAT(Encode(pairs, "hell"), ElementsAre(hell));
  pairs.SetFlag("add_bos_token", true);
  pairs.SetFlag("add_eos_token", true);
  EXPECT_THAT(Encode(pairs, "hell"), ElementsAre(11, hell, 11));  // llama.cpp's default.
  pairs.SetNumber("bos_token_id", 3);
  pairs.SetNumber("eos_token_id", 4);
  EXPECT_THAT(Encode(pairs, "hell"), ElementsAre(3, hell, 4));
  EXPECT_THAT(Encode(pairs, "hell", SpecialTokens::kLeaveOut), ElementsAre(hell));
  pairs.SetNumber("bos_token_id", 100'000);  // No such token: the default counts.
  EXPECT_THAT(Encode(pairs, "hell"), ElementsAre(11, hell, 4));

  SmallVocabulary llama3 =
      SmallVocabulary::BytePairs("llama-bpe", {"he", "ll", "hell"}, {"h e", "l l", "he ll"});
  EXPECT_THAT(Encode(llama3, "hell"), ElementsAre(11, hell));
  llama3.SetFlag("add_bos_token", false);
  EXPECT_THAT(Encode(llama3, "hell"), ElementsAre(hell));

  SmallVocabulary pieces = Pieces();
  const uint32_t space = pieces.IdOf("▁");
  const uint32_t ab = pieces.IdOf("ab");
  EXPECT_THAT(Encode(pieces, "ab"), ElementsAre(1, space, ab));
  pieces.SetFlag("add_eos_token", true);
  pieces.SetFlag("add_space_prefix", false);
  EXPECT_THAT(Encode(pieces, "ab"), ElementsAre(1, ab, 2));
}

TEST(GgufVocabularyTest, EachBeginningOfTextHasASpaceInFront) {
  SmallVocabulary pieces = Pieces();
  const uint32_t space = pieces.IdOf("▁");
  const uint32_t a = pieces.IdOf("a");
  // llama.cpp does this behind a special token too.
  EXPECT_THAT(Encode(pieces, "a</s>a", SpecialTokens::kLeaveOut),
              ElementsAre(space, a, 2, space, a));
  const auto tokenizer = *pieces.Make();
  EXPECT_EQ(tokenizer->Decode({space, a, space, a}), "a a");
}

TEST(GgufVocabularyTest, Phi3DropsTheSpacesBehindSpecialTokens) {
  SmallVocabulary pieces = Pieces();
  pieces.AddToken("<|end|>", SmallVocabulary::kControl);
  pieces.SetFlag("add_space_prefix", false);
  const uint32_t end = pieces.IdOf("<|end|>");
  const uint32_t space = pieces.IdOf("▁");
  const uint32_t a = pieces.IdOf("a");
  const std::string text = "<|end|>  \n a<s> a";
  EXPECT_THAT(Encode(pieces, text, SpecialTokens::kLeaveOut),
              ElementsAre(end, space, space, 3 + '\n', space, a, 1, space, a));
  pieces.SetPlainText("general.name", "Phi-3-mini");
  EXPECT_THAT(Encode(pieces, text, SpecialTokens::kLeaveOut), ElementsAre(end, a, 1, space, a));
}

TEST(GgufVocabularyTest, EndsAnAnswerAtEveryTokenThatDoes) {
  SmallVocabulary pairs = Pairs();
  for (const char* const token : {"<|im_end|>", "<|fim_pad|>", "<PAD>", "<|fim_prefix|>"}) {
    pairs.AddToken(token, SmallVocabulary::kNormal);
  }
  pairs.SetNumber("eos_token_id", 7);
  pairs.SetNumber("eot_token_id", 8);
  pairs.SetNumber("eom_token_id", 9);
  const auto tokenizer = *pairs.Make();
  EXPECT_THAT(tokenizer->end_tokens(),
              ElementsAre(7, 8, 9, pairs.IdOf("<|im_end|>"), pairs.IdOf("<|fim_pad|>")));
  // Control tokens, whatever the file says.
  EXPECT_TRUE(tokenizer->IsSpecial(pairs.IdOf("<|im_end|>")));
  EXPECT_TRUE(tokenizer->IsSpecial(pairs.IdOf("<|fim_prefix|>")));
  EXPECT_FALSE(tokenizer->IsSpecial(pairs.IdOf("<PAD>")));
  EXPECT_EQ(tokenizer->eos_token(), 7);
}

TEST(GgufVocabularyTest, ThePartsOfAnAnswerOfGptOssDoNotEndIt) {
  SmallVocabulary pairs = Pairs();
  for (const char* const token : {"<|end|>", "<|channel|>"}) {
    pairs.AddToken(token, SmallVocabulary::kControl);
  }
  EXPECT_THAT((*pairs.Make())->end_tokens(), Contains(pairs.IdOf("<|end|>")));
  pairs.AddToken("<|return|>", SmallVocabulary::kControl);
  pairs.AddToken("<|call|>", SmallVocabulary::kControl);
  const auto tokenizer = *pairs.Make();
  EXPECT_THAT(tokenizer->end_tokens(), Not(Contains(pairs.IdOf("<|end|>"))));
  EXPECT_THAT(tokenizer->end_tokens(), Contains(pairs.IdOf("<|return|>")));
  EXPECT_THAT(tokenizer->end_tokens(), Contains(pairs.IdOf("<|call|>")));
  // Users see them.
  EXPECT_FALSE(tokenizer->IsSpecial(pairs.IdOf("<|channel|>")));
  EXPECT_FALSE(tokenizer->IsSpecial(pairs.IdOf("<|end|>")));
}

TEST(GgufVocabularyTest, ATagOfHtmlDoesNotEndAnAnswerOfGemma4) {
  SmallVocabulary pairs = Pairs();
  pairs.AddToken("</s>", SmallVocabulary::kControl);
  EXPECT_THAT((*pairs.Make())->end_tokens(), Contains(pairs.IdOf("</s>")));
  pairs.AddToken("<|tool_response>", SmallVocabulary::kControl);
  const auto tokenizer = *pairs.Make();
  EXPECT_THAT(tokenizer->end_tokens(), Not(Contains(pairs.IdOf("</s>"))));
  EXPECT_THAT(tokenizer->end_tokens(), Contains(pairs.IdOf("<|tool_response>")));
}

TEST(GgufVocabularyTest, LeavesOutWhatHasNoToken) {
  // A token for no byte: neither the unknown token nor those of bytes are there.
  SmallVocabulary pairs;
  for (const char* const token : {"a", "b"}) pairs.AddToken(token, SmallVocabulary::kNormal);
  pairs.SetText("model", "gpt2");
  pairs.SetText("pre", "gpt-2");
  pairs.SetTexts("merges", {"a c", "ac b", " x", "nospace", ""});
  EXPECT_THAT(Encode(pairs, "acb z"), ElementsAre(0, 1));
  // Unknown bytes of a SentencePiece vocabulary become the unknown token.
  SmallVocabulary pieces;
  pieces.AddToken("<unk>", SmallVocabulary::kUnknown);
  pieces.AddToken("a", SmallVocabulary::kNormal);
  pieces.SetText("model", "llama");
  pieces.SetFlag("add_bos_token", false);
  pieces.SetFlag("add_space_prefix", false);
  EXPECT_THAT(Encode(pieces, "aéa"), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(Encode(pieces, ""), IsEmpty());
}

}  // namespace
}  // namespace pagoda
