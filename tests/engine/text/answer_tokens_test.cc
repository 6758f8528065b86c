// The bytes of single tokens, held against the decoding of whole texts.
#include "engine/text/answer_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf/gguf.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda {
namespace {

std::string File(const std::string& name) { return absl::StrCat(PAGODA_GOLDEN_DIR, "/", name); }

std::unique_ptr<Tokenizer> LoadKind(const std::string& kind) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = absl::UnknownError("not loaded");
  if (absl::EndsWith(kind, ".gguf")) {
    const absl::StatusOr<GgufFile> file = GgufFile::Open(File(kind));
    EXPECT_TRUE(file.ok()) << file.status();
    tokenizer = Tokenizer::FromGguf(file->metadata());
  } else {
    tokenizer = Tokenizer::Load(File(kind));
  }
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

class AnswerTokensTest : public testing::TestWithParam<const char*> {};

// Valid UTF-8, because others become U+FFFD when they are decoded.
TEST_P(AnswerTokensTest, TheirBytesTogetherAreTheDecodedText) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind(GetParam());
  const AnswerVocabulary vocabulary = AnswerTokens(*tokenizer);
  ASSERT_EQ(vocabulary.bytes.size(), tokenizer->size());
  std::vector<TokenId> texts;
  for (TokenId id = 0; id < vocabulary.bytes.size(); ++id) {
    if (!vocabulary.bytes[id].empty()) texts.push_back(id);
  }
  ASSERT_GT(texts.size(), 200u);
  std::mt19937 random(1);
  size_t compared = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<TokenId> ids(1 + random() % 6);
    for (TokenId& id : ids) id = texts[random() % texts.size()];
    const bool may_begin =
        !std::binary_search(vocabulary.not_first.begin(), vocabulary.not_first.end(), ids.front());
    std::string bytes;
    for (const TokenId id : ids) bytes += vocabulary.bytes[id];
    if (!IsUtf8(bytes)) continue;
    ++compared;
    if (may_begin) {
      ASSERT_EQ(bytes, tokenizer->Decode(ids)) << testing::PrintToString(ids);
    } else {
      ASSERT_NE(bytes, tokenizer->Decode(ids)) << testing::PrintToString(ids);
    }
  }
  EXPECT_GT(compared, 1'000u);
}

TEST_P(AnswerTokensTest, SpecialTokensAreNoText) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind(GetParam());
  const AnswerVocabulary vocabulary = AnswerTokens(*tokenizer);
  for (TokenId id = 0; id < vocabulary.bytes.size(); ++id) {
    if (tokenizer->IsSpecial(id)) {
      EXPECT_EQ(vocabulary.bytes[id], "") << id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, AnswerTokensTest,
                         testing::Values("qwen3_tiny/tokenizer.json", "gemma3_tiny/tokenizer.json",
                                         "text/mistral/tokenizer.json",
                                         "text/metaspace/tokenizer.json",
                                         "text/llama3/tokenizer.json", "text_gguf/bytes.gguf",
                                         "text_gguf/spaces.gguf", "text_gguf/gemma4.gguf"));

// Llama's tokenizers drop the space before the first word.
TEST(AnswerTokensTest, ATokenCanLoseItsSpaceAtTheBeginning) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind("text_gguf/spaces.gguf");
  const AnswerVocabulary vocabulary = AnswerTokens(*tokenizer);
  EXPECT_FALSE(vocabulary.not_first.empty());
  EXPECT_TRUE(std::is_sorted(vocabulary.not_first.begin(), vocabulary.not_first.end()));
  for (const TokenId id : vocabulary.not_first) EXPECT_EQ(vocabulary.bytes[id].front(), ' ') << id;
}

}  // namespace
}  // namespace pagoda
