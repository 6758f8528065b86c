// The vocabularies of tests/golden/text_gguf, compared with llama.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/gguf/gguf.h"
#include "engine/text/encoding/utf8.h"
#include "engine/text/tokenizer/gguf_pre_tokenizers.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace pagoda {
namespace {

using nlohmann::json;
using ::testing::ElementsAreArray;

std::string File(const std::string& name) {
  return absl::StrCat(PAGODA_GOLDEN_DIR, "/text_gguf/", name);
}

json ReadJson(const std::string& name) {
  std::ifstream in(File(name));
  return json::parse(in);
}

GgufFile OpenKind(const std::string& kind) {
  absl::StatusOr<GgufFile> file = GgufFile::Open(File(kind + ".gguf"));
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

std::unique_ptr<Tokenizer> LoadKind(const std::string& kind) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::FromGguf(OpenKind(kind).metadata());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::vector<TokenId> Ids(const json& ids) { return ids.get<std::vector<TokenId>>(); }

class GgufTokenizerKindTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizerKindTest, GivesTheIdsAndTheTextsOfLlamaCpp) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind(GetParam());
  const json cases = ReadJson(absl::StrCat(GetParam(), ".json"));
  ASSERT_GT(cases["texts"].size(), 140);
  for (const json& example : cases["texts"]) {
    const auto text = example["text"].get<std::string>();
    SCOPED_TRACE(example.dump());
    const auto plain = tokenizer->Encode(text, SpecialTokens::kLeaveOut);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_THAT(*plain, ElementsAreArray(Ids(example["ids"])));
    const auto whole = tokenizer->Encode(text, SpecialTokens::kKeep);
    EXPECT_THAT(*whole, ElementsAreArray(Ids(example["with_special"])));
    EXPECT_EQ(tokenizer->Decode(*plain, SpecialTokens::kKeep), example["decoded"]);
  }
}

TEST_P(GgufTokenizerKindTest, DecodesAnyIdsAsLlamaCppDoes) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind(GetParam());
  const json cases = ReadJson(absl::StrCat(GetParam(), ".json"));
  ASSERT_EQ(cases["answers"].size(), 40);
  for (const json& example : cases["answers"]) {
    EXPECT_EQ(tokenizer->Decode(Ids(example["ids"]), SpecialTokens::kKeep), example["decoded"])
        << example.dump();
  }
}

TEST_P(GgufTokenizerKindTest, StreamsWholeCharactersAlone) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind(GetParam());
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<TokenId> ids(random() % 30);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % (tokenizer->size() + 3));
    StreamDecoder stream(tokenizer.get());
    std::string text;
    for (const TokenId id : ids) {
      const std::string piece = stream.Add(id);
      ASSERT_TRUE(IsUtf8(piece));
      text += piece;
    }
    text += stream.Finish();
    EXPECT_EQ(text, tokenizer->Decode(ids));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GgufTokenizerKindTest,
                         testing::Values("bytes", "spaces", "gemma4"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(GgufPreTokenizerTest, EveryNameCutsAsInLlamaCpp) {
  const json cases = ReadJson("words.json");
  const GgufFile file = OpenKind("bytes");
  GgufMetadata metadata = file.metadata();
  std::set<std::string> seen = {"gemma4", "sarvam-moe"};  // These need another vocabulary.
  for (const json& result : cases["results"]) {
    for (const std::string name : result["names"]) {
      SCOPED_TRACE(name);
      seen.insert(name);
      metadata["tokenizer.ggml.pre"] = name;
      const auto tokenizer = Tokenizer::FromGguf(metadata);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
      for (size_t i = 0; i < cases["texts"].size(); ++i) {
        const auto ids =
            (*tokenizer)->Encode(cases["texts"][i].get<std::string>(), SpecialTokens::kLeaveOut);
        ASSERT_TRUE(ids.ok()) << ids.status();
        EXPECT_THAT(*ids, ElementsAreArray(Ids(result["ids"][i]))) << cases["texts"][i];
      }
    }
  }
  EXPECT_THAT(GgufPreTokenizerNames(), ElementsAreArray(seen));
}

TEST(GgufPreTokenizerTest, LinesWithVisibleSpacesAreThoseOfLlamaCpp) {
  const json cases = ReadJson("words.json");
  const GgufFile file = OpenKind("gemma4");
  GgufMetadata metadata = file.metadata();
  metadata["tokenizer.ggml.model"] = "gpt2";
  metadata["tokenizer.ggml.pre"] = "sarvam-moe";
  const auto tokenizer = Tokenizer::FromGguf(metadata);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  for (size_t i = 0; i < cases["texts"].size(); ++i) {
    const auto ids =
        (*tokenizer)->Encode(cases["texts"][i].get<std::string>(), SpecialTokens::kLeaveOut);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_THAT(*ids, ElementsAreArray(Ids(cases["sarvam-moe"][i]))) << cases["texts"][i];
  }
}

}  // namespace
}  // namespace pagoda
