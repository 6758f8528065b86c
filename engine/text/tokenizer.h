// Turns text into token ids and back, by a Hugging Face tokenizer.json.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/decoder.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "pools/types.h"

namespace pagoda {

// Whether special tokens are part of a text.
enum class SpecialTokens : uint8_t { kLeaveOut, kKeep };

// A model's tokenizer. Thread-safe.
class Tokenizer {
 public:
  // Errors: INVALID_CHECKPOINT, which names the error or the unsupported part; NOT_FOUND if there
  // is no such file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& file);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view json);

  // Finds special tokens in the text. kKeep also adds those that the model wants around the text
  // (its `post_processor`). Errors: INVALID_PROMPT (not UTF-8, longer than kMaxTextBytes, or an
  // expression takes too long).
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, SpecialTokens around) const;

  // Returns UTF-8. Skips ids that no token has.
  std::string Decode(absl::Span<const TokenId> tokens,
                     SpecialTokens special = SpecialTokens::kLeaveOut) const;

  std::optional<TokenId> Find(absl::string_view token) const;
  // The token as in the vocabulary; null if there is none.
  const std::string* Token(TokenId id) const;
  bool IsSpecial(TokenId id) const;
  // One more than the largest id.
  size_t size() const { return size_; }

  const Decoder& decoder() const { return decoder_; }

  static constexpr size_t kMaxFileBytes = 512 << 20;
  static constexpr size_t kMaxTextBytes = 64 << 20;

 private:
  Tokenizer() = default;

  absl::Status Read(const nlohmann::json& root);
  absl::Status ReadPostProcessor(const nlohmann::json& json, int depth);
  absl::Status ReadTemplate(const nlohmann::json& json);
  absl::Status AddFinders();
  absl::Status EncodePart(absl::string_view text, bool begins_text, absl::Time deadline,
                          std::vector<TokenId>& out) const;

  std::unique_ptr<Bpe> bpe_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Decoder decoder_;
  absl::flat_hash_map<std::string, TokenId> added_ids_;
  absl::flat_hash_map<TokenId, AddedToken> added_;
  AddedTokenFinder raw_finder_;         // For the raw text.
  AddedTokenFinder normalized_finder_;  // For the normalized text.
  std::vector<TokenId> before_;
  std::vector<TokenId> behind_;
  size_t size_ = 0;
};

// The text of one answer, token by token. Thread-compatible.
class StreamDecoder {
 public:
  // `tokenizer` outlives it.
  explicit StreamDecoder(const Tokenizer* tokenizer,
                         SpecialTokens special = SpecialTokens::kLeaveOut)
      : tokenizer_(*tokenizer), special_(special) {}

  // The whole characters that the token completes. The results of all calls and Finish together
  // equal Tokenizer::Decode.
  std::string Add(TokenId token);
  // The rest when no token follows: U+FFFD for bytes of an incomplete character.
  std::string Finish() { return tokenizer_.decoder().Finish(state_); }

 private:
  const Tokenizer& tokenizer_;
  const SpecialTokens special_;
  Decoder::State state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_H_
