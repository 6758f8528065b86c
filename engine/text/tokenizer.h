// Text to token ids and back, as a Hugging Face tokenizer.json says.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
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

// One model's. Thread-safe.
class Tokenizer {
 public:
  // Errors: INVALID_CHECKPOINT, which names what is wrong or not served; NOT_FOUND, where there is
  // no such file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& file);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view json);

  // Special tokens that stand in the text are found in it. kKeep puts those around the text that
  // the model wants there (its `post_processor`). Errors: INVALID_PROMPT (no UTF-8, longer than
  // kMaxTextBytes, or an expression takes too long).
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, SpecialTokens around) const;

  // Always UTF-8. Ids that no token has say nothing.
  std::string Decode(absl::Span<const TokenId> tokens,
                     SpecialTokens special = SpecialTokens::kLeaveOut) const;

  std::optional<TokenId> Find(absl::string_view token) const;
  // The token as the vocabulary has it; null where there is none.
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
  AddedTokenFinder raw_finder_;         // In the text as it comes.
  AddedTokenFinder normalized_finder_;  // In what the normalizer makes of it.
  std::vector<TokenId> before_;
  std::vector<TokenId> behind_;
  size_t size_ = 0;
};

// One answer's text, token by token. Thread-compatible.
class StreamDecoder {
 public:
  // `tokenizer` outlives it.
  explicit StreamDecoder(const Tokenizer* tokenizer,
                         SpecialTokens special = SpecialTokens::kLeaveOut)
      : tokenizer_(*tokenizer), special_(special) {}

  // The whole characters that the token completes. What all calls and Finish give is what
  // Tokenizer::Decode gives.
  std::string Add(TokenId token);
  // What is left, when no token follows: U+FFFD for bytes that wait for the rest of a character.
  std::string Finish() { return tokenizer_.decoder().Finish(state_); }

 private:
  const Tokenizer& tokenizer_;
  const SpecialTokens special_;
  Decoder::State state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_H_
