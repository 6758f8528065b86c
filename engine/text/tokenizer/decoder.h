// Turns tokens into text, one by one.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_DECODER_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_DECODER_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pagoda {

// The `decoder` of a tokenizer.json, or the rules for a GGUF file. The steps, in this order: steps
// for each token (Replace, Strip, Metaspace), the conversion of tokens to bytes (ByteLevel,
// ByteFallback or none), Fuse, and Strip of the beginning. Thread-safe.
class Decoder {
 public:
  // Null: tokens with spaces between them. Errors: INVALID_CHECKPOINT, which names the unsupported
  // part; another order is unsupported too.
  static absl::StatusOr<Decoder> Parse(const nlohmann::json* json);

  // For pieces that the caller makes of tokens. kInvalidRun and kInvalidByte: what becomes U+FFFD.
  enum class Replaces : uint8_t { kInvalidRun, kInvalidByte };
  enum class FirstSpace : uint8_t { kKeep, kStrip };
  static Decoder ForPieces(Replaces replaces, FirstSpace first_space);

  // The text or the byte that a token stands for.
  struct Piece {
    std::string bytes;
    bool is_byte = false;  // With ByteFallback or kInvalidByte: a byte token, not text.
  };

  // The state of a text.
  struct State {
    uint64_t tokens = 0;     // So far.
    uint32_t stripped = 0;   // Characters stripped from its beginning.
    bool has_begun = false;  // Stripping of its beginning has ended.
    std::string incomplete;  // The first bytes of a character.
  };
  // The whole characters that the next token completes. Invalid bytes become U+FFFD: one for each
  // byte with ByteFallback, otherwise one for each run that begins no character.
  std::string Add(const std::string& token, State& state) const;
  std::string AddPiece(Piece piece, State& state) const;
  // The rest of the text when no token follows.
  std::string Finish(State& state) const;

  // What the token adds to a text, before bytes are joined to characters: behind other text, or as
  // the text's first token.
  enum class Place : uint8_t { kFirst, kLater };
  std::string BytesOf(const std::string& token, Place place) const;
  std::string BytesOfPiece(Piece piece, Place place) const;

 private:
  enum class Stage : uint8_t { kTokens, kBytes, kText };
  enum class Bytes : uint8_t { kText, kByteLevel, kByteFallback };
  using TokenStep = std::function<std::string(std::string token, uint64_t index)>;

  absl::Status Add(const nlohmann::json& json, int depth, Stage& stage);
  absl::Status AddTokenStep(const nlohmann::json& json, const std::string& type);
  absl::Status AddStrip(const nlohmann::json& json, Stage stage);
  absl::Status SetBytes(Bytes bytes, Stage& stage);

  static State StateAt(Place place) {
    return place == Place::kFirst ? State{} : State{.tokens = 1, .has_begun = true};
  }
  Piece PieceOf(std::string token, const State& state) const;
  // Moves the whole characters at the beginning of state.incomplete to `out`.
  void TakeCharacters(State& state, std::string& out) const;
  void Replace(size_t bytes, std::string& out) const;
  void StripBeginning(State& state, std::string& text) const;

  std::vector<TokenStep> token_steps_;
  Bytes bytes_ = Bytes::kText;
  std::string separator_;
  char32_t strip_character_ = 0;
  uint32_t strip_count_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_DECODER_H_
