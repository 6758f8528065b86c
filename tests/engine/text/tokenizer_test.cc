// The tokenizers of tests/golden/text, compared with the package `tokenizers`.
#include "engine/text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/text/encoding/utf8.h"

namespace pagoda {
namespace {

using nlohmann::json;

std::string Folder(const std::string& kind) {
  return absl::StrCat(PAGODA_GOLDEN_DIR, "/text/", kind, "/");
}

json ReadJson(const std::string& file) {
  std::ifstream in(file);
  return json::parse(in);
}

std::unique_ptr<Tokenizer> LoadKind(const std::string& kind) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::Load(Folder(kind) + "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

absl::Status ParseStatus(const json& root) { return Tokenizer::Parse(root.dump()).status(); }

// The bytes of a vocabulary's tokens <0x00> to <0xFF>, if it has them.
std::map<TokenId, char> ByteTokens(const std::string& kind) {
  const json model = ReadJson(Folder(kind) + "tokenizer.json")["model"];
  std::map<TokenId, char> bytes;
  if (!model.contains("byte_fallback") || model["byte_fallback"] != true) return bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[model["vocab"][absl::StrFormat("<0x%02X>", byte)]] = static_cast<char>(byte);
  }
  return bytes;
}

// The reference turns each byte of a run of byte tokens into U+FFFD if the run as a whole is not
// UTF-8. Ours keeps the run's whole characters, as SentencePiece does, because a stream cannot wait
// for the run's end. Both do the same with bytes that are never UTF-8.
void SpoilBrokenRuns(const std::map<TokenId, char>& bytes, std::vector<TokenId>& ids) {
  if (bytes.empty()) return;
  TokenId never = 0;
  for (const auto& [id, byte] : bytes) never = byte == '\xff' ? id : never;
  for (size_t begin = 0; begin < ids.size();) {
    std::string run;
    size_t end = begin;
    for (; end < ids.size() && bytes.contains(ids[end]); ++end) run += bytes.at(ids[end]);
    if (!IsUtf8(run)) std::fill(ids.begin() + begin, ids.begin() + end, never);
    begin = std::max(end, begin + 1);
  }
}

class TokenizerKindTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerKindTest, GivesTheIdsAndTheTextsOfTheReference) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind(GetParam());
  const json cases = ReadJson(Folder(GetParam()) + "cases.json");
  ASSERT_GT(cases["texts"].size(), 90);
  for (const json& example : cases["texts"]) {
    const auto text = example["text"].get<std::string>();
    SCOPED_TRACE(example.dump());
    const auto plain = tokenizer->Encode(text, SpecialTokens::kLeaveOut);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_EQ(*plain, example["ids"].get<std::vector<TokenId>>());
    const auto whole = tokenizer->Encode(text, SpecialTokens::kKeep);
    EXPECT_EQ(*whole, example["with_special"].get<std::vector<TokenId>>());
    EXPECT_EQ(tokenizer->Decode(*plain), example["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->Decode(*whole, SpecialTokens::kKeep),
              example["decoded_with_special"].get<std::string>());
  }
}

TEST_P(TokenizerKindTest, DecodesAnyIdsAsTheReferenceDoes) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind(GetParam());
  const json cases = ReadJson(Folder(GetParam()) + "cases.json");
  ASSERT_FALSE(cases["answers"].empty());
  const std::map<TokenId, char> bytes = ByteTokens(GetParam());
  std::set<TokenId> special;
  const json vocabulary = ReadJson(Folder(GetParam()) + "tokenizer.json");
  for (const json& token : vocabulary.at("added_tokens")) {
    if (token["special"] == true) special.insert(token["id"].get<TokenId>());
  }
  for (const json& example : cases["answers"]) {
    SCOPED_TRACE(example.dump());
    auto ids = example["ids"].get<std::vector<TokenId>>();
    // Special tokens are left out, and end no run.
    std::erase_if(ids, [&](TokenId id) { return special.contains(id); });
    SpoilBrokenRuns(bytes, ids);
    EXPECT_EQ(tokenizer->Decode(ids), example["decoded"].get<std::string>());
  }
}

TEST_P(TokenizerKindTest, StreamsWholeCharactersAlone) {
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

INSTANTIATE_TEST_SUITE_P(Golden, TokenizerKindTest,
                         testing::Values("qwen", "llama3", "gemma", "mistral", "metaspace", "gpt2",
                                         "split_all"),
                         [](const auto& kind) { return std::string(kind.param); });

std::string RandomText(std::mt19937& random) {
  std::string text;
  const size_t size = random() % 60;
  while (text.size() < size) {
    const uint32_t choice = random() % 4;
    const char32_t code_point = choice == 0   ? random() % 0x80
                                : choice == 1 ? random() % 0x800
                                : choice == 2 ? random() % 0xD800
                                              : 0xE000 + random() % (0x110000 - 0xE000);
    AppendUtf8(code_point, text);
  }
  return text;
}

TEST(TokenizerTest, ByteLevelRoundTrips) {
  // Neither normalizes.
  json root = ReadJson(Folder("qwen") + "tokenizer.json");
  root.erase("normalizer");
  const std::unique_ptr<Tokenizer> qwen = *Tokenizer::Parse(root.dump());
  const std::unique_ptr<Tokenizer> llama3 = LoadKind("llama3");
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = RandomText(random);
    for (const Tokenizer* tokenizer : {qwen.get(), llama3.get()}) {
      const auto ids = tokenizer->Encode(text, SpecialTokens::kLeaveOut);
      ASSERT_TRUE(ids.ok()) << ids.status();
      ASSERT_EQ(tokenizer->Decode(*ids), text);
    }
  }
}

TEST(TokenizerTest, StreamHoldsACharacterUntilItIsWhole) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind("qwen");
  const auto ids = tokenizer->Encode("\U0001F600", SpecialTokens::kLeaveOut);
  ASSERT_EQ(ids->size(), 4);
  StreamDecoder stream(tokenizer.get());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stream.Add((*ids)[i]), "");
  EXPECT_EQ(stream.Add((*ids)[3]), "\U0001F600");
  for (int i = 0; i < 3; ++i) stream.Add((*ids)[i]);
  EXPECT_EQ(stream.Finish(), kReplacementCharacter);
}

TEST(TokenizerTest, RefusesTextThatIsNoUtf8) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind("qwen");
  for (const char* text : {"\xFF", "a\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    const auto ids = tokenizer->Encode(text, SpecialTokens::kLeaveOut);
    EXPECT_EQ(ReasonOf(ids.status()), Reason::kInvalidPrompt) << ids.status();
  }
}

TEST(TokenizerTest, EncodesOneLongWordInTime) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadKind("gemma");
  std::string text;
  while (text.size() < 1 << 20) text += "thecapital";
  const absl::Time begin = absl::Now();
  const auto ids = tokenizer->Encode(text, SpecialTokens::kLeaveOut);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer->Decode(*ids), text);
  // Merging with a scan of the whole word each time would take minutes.
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST(TokenizerTest, RefusesAnExpressionThatTakesForever) {
  json root = ReadJson(Folder("qwen") + "tokenizer.json");
  root["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"Regex", "(a+)+b"}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const std::unique_ptr<Tokenizer> tokenizer = *Tokenizer::Parse(root.dump());
  const auto ids = tokenizer->Encode(std::string(64, 'a'), SpecialTokens::kLeaveOut);
  EXPECT_EQ(ReasonOf(ids.status()), Reason::kInvalidPrompt) << ids.status();
  EXPECT_TRUE(absl::StrContains(ids.status().message(), "too long"));
}

TEST(TokenizerTest, RefusesByNameWhatIsNotServed) {
  const json root = ReadJson(Folder("qwen") + "tokenizer.json");
  struct Case {
    const char* key;
    json value;
    const char* named;
  };
  const std::vector<Case> cases = {
      {"normalizer", {{"type", "BertNormalizer"}}, "BertNormalizer"},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}}, "Nmt"},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}, "BertPreTokenizer"},
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
       "(a"},
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}},
       "Sideways"},
      {"post_processor", {{"type", "RobertaProcessing"}}, "RobertaProcessing"},
      {"decoder", {{"type", "WordPiece"}}, "WordPiece"},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Fuse"}},
          {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "b"}}}}},
       "Replace"},
      {"model", {{"type", "Unigram"}, {"vocab", json::array()}}, "Unigram"},
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", json::array()}, {"dropout", 0.5}},
       "dropout"},
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}}},
        {"merges", json::array()},
        {"end_of_word_suffix", "</w>"}},
       "end_of_word_suffix"},
  };
  for (const Case& wrong : cases) {
    json changed = root;
    changed[wrong.key] = wrong.value;
    const absl::Status status = ParseStatus(changed);
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << wrong.named;
    EXPECT_TRUE(absl::StrContains(status.message(), wrong.named)) << status;
  }
}

TEST(TokenizerTest, RefusesDamagedFiles) {
  const json root = ReadJson(Folder("llama3") + "tokenizer.json");
  const auto refused = [&](const std::function<void(json&)>& damage) {
    json changed = root;
    damage(changed);
    const absl::Status status = ParseStatus(changed);
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidCheckpoint) << status;
    return std::string(status.message());
  };
  refused([](json& j) { j.erase("model"); });
  refused([](json& j) { j["model"]["vocab"] = json::array(); });
  refused([](json& j) { j["model"]["vocab"]["zz"] = 4'000'000'000u; });
  refused([](json& j) { j["model"]["vocab"]["zz"] = -1; });
  refused([](json& j) { j["model"]["vocab"]["zz"] = 5; });
  refused([](json& j) { j["model"]["merges"] = {{"nowhere", "there"}}; });
  refused([](json& j) { j["model"]["merges"] = {"a"}; });
  refused([](json& j) { j["model"]["merges"] = {1}; });
  refused([](json& j) { j["model"]["unk_token"] = "nowhere"; });
  refused([](json& j) { j["added_tokens"] = {{{"id", 4'000'000'000u}, {"content", "x"}}}; });
  refused([](json& j) { j["added_tokens"] = {{{"id", 1}, {"content", ""}}}; });
  refused([](json& j) { j["added_tokens"] = 7; });
  refused([](json& j) { j["post_processor"]["processors"][1]["single"] = json::array(); });
  refused([](json& j) { j["post_processor"]["processors"][1]["special_tokens"] = nullptr; });
  json deep = json::array();
  for (int i = 0; i < 100; ++i) deep = json::array({deep});
  EXPECT_TRUE(absl::StrContains(refused([&](json& j) { j["normalizer"] = deep; }), "deep"));
  EXPECT_EQ(ReasonOf(Tokenizer::Parse("{").status()), Reason::kInvalidCheckpoint);
  EXPECT_EQ(ReasonOf(Tokenizer::Parse(std::string(1 << 20, '[')).status()),
            Reason::kInvalidCheckpoint);
  EXPECT_EQ(ReasonOf(Tokenizer::Parse("[]").status()), Reason::kInvalidCheckpoint);
  EXPECT_TRUE(absl::IsNotFound(Tokenizer::Load("/nowhere/tokenizer.json").status()));
}

}  // namespace
}  // namespace pagoda
