// Turns text into token ids and back, by a Hugging Face tokenizer.json or a GGUF file.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_TOKENIZER_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/checkpoint/gguf/gguf_values.h"
#include "engine/text/tokenizer/decoder.h"
#include "pools/types.h"

namespace pagoda {

// Whether special tokens are part of a text.
enum class SpecialTokens : uint8_t { kLeaveOut, kKeep };

// A model's tokenizer. Thread-safe.
class Tokenizer {
 public:
  // A tokenizer.json. Errors: INVALID_CHECKPOINT, which names the error or the unsupported part;
  // NOT_FOUND if there is no such file.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& file);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view json);
  // The keys "tokenizer.ggml..." of a GGUF file, by llama.cpp's rules. Errors: INVALID_CHECKPOINT
  // as above; INVALID_ARGUMENT if the file has no vocabulary.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromGguf(const GgufMetadata& metadata);

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Finds special tokens in the text. kKeep also adds those that the model wants around the text.
  // Errors: INVALID_PROMPT (not UTF-8, longer than kMaxTextBytes, or an expression takes too long).
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, SpecialTokens around) const;

  // Returns UTF-8. Skips ids that no token has.
  std::string Decode(absl::Span<const TokenId> tokens,
                     SpecialTokens special = SpecialTokens::kLeaveOut) const;

  virtual std::optional<TokenId> Find(absl::string_view token) const = 0;
  // The token as in the vocabulary; null if there is none.
  virtual const std::string* Token(TokenId id) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;
  // The bytes that the token adds to a decoded text with special tokens: a character can be spread
  // over several tokens. Empty if no token has the id.
  std::string Bytes(TokenId id, Decoder::Place place) const;
  // One more than the largest id.
  virtual size_t size() const = 0;
  // The tokens at a text's beginning and end, if a GGUF file names them, whether or not the model
  // wants them around a text.
  virtual std::optional<TokenId> bos_token() const { return std::nullopt; }
  virtual std::optional<TokenId> eos_token() const { return std::nullopt; }
  // Any of these ends an answer. Empty if the tokenizer does not say it: a tokenizer.json does not.
  virtual std::vector<TokenId> end_tokens() const { return {}; }

  static constexpr size_t kMaxFileBytes = 512 << 20;
  static constexpr size_t kMaxTextBytes = 64 << 20;

 protected:
  Tokenizer() = default;

 private:
  friend class StreamDecoder;

  // Appends the text's tokens. The text is UTF-8.
  virtual absl::Status EncodeText(absl::string_view text, SpecialTokens around, absl::Time deadline,
                                  std::vector<TokenId>& out) const = 0;
  // The whole characters that the token completes, as StreamDecoder::Add. `text` is Token(id).
  virtual std::string DecodeToken(TokenId id, const std::string& text,
                                  Decoder::State& state) const = 0;
  virtual std::string FinishText(Decoder::State& state) const = 0;
  // Implements Bytes. `text` is Token(id).
  virtual std::string BytesOfToken(TokenId id, const std::string& text,
                                   Decoder::Place place) const = 0;
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
  std::string Finish() { return tokenizer_.FinishText(state_); }

 private:
  const Tokenizer& tokenizer_;
  const SpecialTokens special_;
  Decoder::State state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_TOKENIZER_H_
