#include "engine/text/tokenizer/gguf_vocabulary.h"

#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/checkpoint/gguf/gguf_arrays.h"
#include "engine/text/tokenizer/gguf_end_tokens.h"

namespace pagoda {
namespace {

constexpr char kPrefix[] = "tokenizer.ggml.";
// Real files have at most half a million.
constexpr uint64_t kMaxMerges = 1 << 22;

// Reads single values, and keeps the first error.
class Keys {
 public:
  explicit Keys(const GgufMetadata& metadata) : metadata_(metadata) {}

  const absl::Status& status() const { return status_; }

  const GgufValue* Find(absl::string_view key) const {
    const auto it = metadata_.find(absl::StrCat(kPrefix, key));
    return it == metadata_.end() ? nullptr : &it->second;
  }

  void Refuse(absl::string_view key, absl::string_view wanted) {
    if (status_.ok()) status_ = BadVocabulary(absl::StrCat(kPrefix, key, " is not ", wanted));
  }

  std::string Text(absl::string_view key) {
    const GgufValue* const value = Find(key);
    if (value == nullptr) return "";
    const std::optional<absl::string_view> text = GgufText(*value);
    if (!text.has_value()) Refuse(key, "a text");
    return std::string(text.value_or(""));
  }

  bool Flag(absl::string_view key, bool otherwise) {
    const GgufValue* const value = Find(key);
    if (value == nullptr) return otherwise;
    const int64_t* const number = std::get_if<int64_t>(value);
    if (number == nullptr) Refuse(key, "a boolean");
    return number != nullptr && *number != 0;
  }

  // The id of a token. llama.cpp ignores ids without a token.
  std::optional<TokenId> Id(absl::string_view key, std::optional<TokenId> otherwise, size_t size) {
    if (otherwise.has_value() && *otherwise >= size) otherwise.reset();
    const GgufValue* const value = Find(key);
    if (value == nullptr) return otherwise;
    const int64_t* const number = std::get_if<int64_t>(value);
    if (number == nullptr) Refuse(key, "an integer");
    if (number == nullptr || *number < 0 || static_cast<uint64_t>(*number) >= size) {
      return otherwise;
    }
    return static_cast<TokenId>(*number);
  }

 private:
  const GgufMetadata& metadata_;
  absl::Status status_;
};

absl::StatusOr<TokenTable> ReadTokens(const Keys& keys) {
  const GgufValue* const value = keys.Find("tokens");
  const std::optional<std::vector<absl::string_view>> texts =
      value == nullptr ? std::nullopt : GgufTexts(*value);
  if (!texts.has_value() || texts->empty() || texts->size() > TokenTable::kMaxTokens) {
    return BadVocabulary(
        absl::StrCat(kPrefix, "tokens is not an array of 1 to ", TokenTable::kMaxTokens, " texts"));
  }
  TokenTable tokens(texts->size(), texts->size());
  for (size_t id = 0; id < texts->size(); ++id) {
    const absl::string_view text = (*texts)[id];
    std::string kept = text.empty() ? absl::StrCat("[EMPTY_", id, "]") : std::string(text);
    if (tokens.Add(static_cast<TokenId>(id), std::move(kept)) != TokenTable::Added::kNew) {
      return BadVocabulary(absl::StrCat("two tokens are '",
                                        absl::Utf8SafeCHexEscape(text.substr(0, 80)),
                                        "', one of them with the id ", id));
    }
  }
  return tokens;
}

absl::Status ReadTypes(const Keys& keys, GgufVocabulary& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  vocabulary.types.assign(size, GgufTokenType::kNormal);
  const GgufValue* const value = keys.Find("token_type");
  if (value == nullptr) return absl::OkStatus();
  const std::optional<std::vector<int64_t>> types = GgufIntegers(*value);
  if (!types.has_value() || types->size() < size) {
    return BadVocabulary(absl::StrCat(kPrefix, "token_type is not an array of at least ", size,
                                      " integers, one for each token"));
  }
  for (size_t id = 0; id < size; ++id) {
    const int64_t type = (*types)[id];
    const bool is_known = type >= 0 && type <= static_cast<int64_t>(GgufTokenType::kByte);
    vocabulary.types[id] = is_known ? static_cast<GgufTokenType>(type) : GgufTokenType::kUndefined;
  }
  return absl::OkStatus();
}

absl::Status ReadScores(const Keys& keys, GgufVocabulary& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  vocabulary.scores.assign(size, 0.0f);
  const GgufValue* const value = keys.Find("scores");
  if (value == nullptr) return absl::OkStatus();
  std::optional<std::vector<float>> scores = GgufFloats(*value);
  if (!scores.has_value() || scores->size() < size) {
    return BadVocabulary(absl::StrCat(kPrefix, "scores is not an array of at least ", size,
                                      " numbers, one for each token"));
  }
  scores->resize(size);
  for (size_t id = 0; id < size; ++id) {
    if (!std::isnan((*scores)[id])) continue;
    return BadVocabulary(absl::StrCat(kPrefix, "scores: that of token ", id, " is NaN"));
  }
  vocabulary.scores = *std::move(scores);
  return absl::OkStatus();
}

absl::Status ReadMerges(const Keys& keys, GgufVocabulary& vocabulary) {
  const GgufValue* const value = keys.Find("merges");
  std::optional<std::vector<absl::string_view>> merges =
      value == nullptr ? std::nullopt : GgufTexts(*value);
  if (!merges.has_value() || merges->size() > kMaxMerges) {
    return BadVocabulary(
        absl::StrCat(kPrefix, "merges is not an array of at most ", kMaxMerges, " texts"));
  }
  vocabulary.merges = *std::move(merges);
  return absl::OkStatus();
}

absl::Status ChooseModel(Keys& keys, GgufVocabulary& vocabulary) {
  const std::string model = keys.Text("model");
  const std::string pre_tokenizer = model == "gemma4" ? model : keys.Text("pre");
  if (!keys.status().ok()) return keys.status();
  if (model.empty() || model == "none" || model == "no_vocab") {
    return MakeError(Reason::kInvalidArgument,
                     "the model's GGUF file has no vocabulary and its folder no tokenizer.json, "
                     "so it takes no text: send the prompt as token ids");
  }
  if (model == "llama") {
    vocabulary.model = GgufVocabulary::Model::kSentencePiece;
    return ReadScores(keys, vocabulary);
  }
  if (model != "gpt2" && model != "gemma4") {
    return BadVocabulary(absl::StrCat(kPrefix, "model '", model.substr(0, 80),
                                      "' is not supported; gpt2, llama and gemma4 are"));
  }
  vocabulary.pre_tokenizer = FindGgufPreTokenizer(pre_tokenizer);
  if (vocabulary.pre_tokenizer == nullptr) {
    return BadVocabulary(
        absl::StrCat(kPrefix, "pre '", pre_tokenizer.substr(0, 80), "' is not supported"));
  }
  return ReadMerges(keys, vocabulary);
}

bool IsPhi3(const GgufMetadata& metadata) {
  const auto it = metadata.find("general.name");
  if (it == metadata.end()) return false;
  const std::string name = absl::AsciiStrToLower(GgufText(it->second).value_or(""));
  return absl::StrContains(name, "phi-3") || absl::StrContains(name, "phi3");
}

void ReadIds(Keys& keys, GgufVocabulary& vocabulary) {
  const size_t size = vocabulary.tokens.size();
  // llama.cpp's defaults.
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  if (vocabulary.model == GgufVocabulary::Model::kSentencePiece) {
    bos = 1;
    eos = 2;
    unknown = 0;
  } else if (!vocabulary.pre_tokenizer->joins_newlines) {
    if (vocabulary.pre_tokenizer->has_default_bos) bos = 11;
    eos = 11;
  }
  vocabulary.bos = keys.Id("bos_token_id", bos, size);
  vocabulary.eos = keys.Id("eos_token_id", eos, size);
  vocabulary.unknown = keys.Id("unknown_token_id", unknown, size);
  for (const char* const key : {"eot_token_id", "eom_token_id"}) {
    if (const std::optional<TokenId> id = keys.Id(key, std::nullopt, size)) {
      vocabulary.end_tokens.push_back(*id);
    }
  }
  if (vocabulary.eos.has_value()) vocabulary.end_tokens.push_back(*vocabulary.eos);
}

}  // namespace

absl::Status BadVocabulary(absl::string_view what) {
  return MakeError(Reason::kInvalidCheckpoint, absl::StrCat("the GGUF file's vocabulary: ", what));
}

absl::StatusOr<GgufVocabulary> GgufVocabulary::Read(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  Keys keys(metadata);
  const bool has_tokens = keys.Find("tokens") != nullptr;
  if (has_tokens) {
    absl::StatusOr<TokenTable> tokens = ReadTokens(keys);
    if (!tokens.ok()) return tokens.status();
    vocabulary.tokens = *std::move(tokens);
  }
  if (absl::Status status = ChooseModel(keys, vocabulary); !status.ok()) return status;
  if (!has_tokens) return BadVocabulary(absl::StrCat(kPrefix, "tokens is missing"));
  if (absl::Status status = ReadTypes(keys, vocabulary); !status.ok()) return status;
  ReadIds(keys, vocabulary);

  const bool is_sentence_piece = vocabulary.model == Model::kSentencePiece;
  const bool adds_bos = is_sentence_piece || vocabulary.pre_tokenizer->adds_bos;
  vocabulary.add_bos = keys.Flag("add_bos_token", adds_bos);
  // Files of Gemma 4 say no where they mean yes.
  if (!is_sentence_piece && vocabulary.pre_tokenizer->joins_newlines) vocabulary.add_bos = true;
  vocabulary.add_eos = keys.Flag("add_eos_token", false);
  vocabulary.add_space_prefix = is_sentence_piece && keys.Flag("add_space_prefix", true);
  if (!keys.status().ok()) return keys.status();
  vocabulary.drops_spaces_behind_special = IsPhi3(metadata);
  CorrectEndTokens(vocabulary);
  return vocabulary;
}

}  // namespace pagoda
