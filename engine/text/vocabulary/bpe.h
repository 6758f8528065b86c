// Byte pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword
// Units", 2016).
#ifndef PAGODA_ENGINE_TEXT_VOCABULARY_BPE_H_
#define PAGODA_ENGINE_TEXT_VOCABULARY_BPE_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/vocabulary/token_table.h"
#include "engine/text/vocabulary/word_cache.h"
#include "pools/types.h"

namespace pagoda {

// A vocabulary, and the pairs of tokens that merge into one, the most important first. Thread-safe.
class Bpe {
 public:
  // The rules of llama.cpp for a GGUF file's vocabulary. There, merges are pairs of texts, which
  // need not be tokens. A text that is no token at the end becomes the tokens of its bytes.
  struct Gguf {
    // "a b" merges "a" and "b"; a text without a space behind its first byte is ignored.
    std::vector<absl::string_view> merges;
    // The token of a byte: "<0x41>", or the character itself, which only ASCII's have.
    enum class Bytes : uint8_t { kHex, kAscii };
    Bytes bytes = Bytes::kAscii;
    bool ignore_merges = false;  // A word that is a token is that token.
  };

  // A `model` of type BPE of a tokenizer.json. Errors: INVALID_CHECKPOINT, which names the error or
  // the unsupported part.
  static absl::StatusOr<std::unique_ptr<Bpe>> Parse(const nlohmann::json& model);

  static std::unique_ptr<Bpe> FromGguf(TokenTable tokens, const Gguf& gguf);

  // Appends the word's tokens. A character outside the vocabulary is left out if the model has no
  // token for unknown ones. Cost: O(n log n) in the word's bytes; short words are cached.
  void Encode(absl::string_view word, std::vector<TokenId>& out) const;
  // The same without the cache.
  void EncodeAnew(absl::string_view word, std::vector<TokenId>& out) const;

  const TokenTable& tokens() const { return tokens_; }

 private:
  struct Merge {
    uint32_t rank = 0;
    TokenId token = 0;
  };
  class Merger;

  explicit Bpe(TokenTable tokens) : tokens_(std::move(tokens)) {}

  absl::Status ReadMerges(const nlohmann::json& merges);
  absl::Status AddMerge(absl::string_view left, absl::string_view right, uint32_t rank);

  // The tokens of the word's characters, in a model of a tokenizer.json.
  std::vector<TokenId> Characters(absl::string_view word) const;
  bool AddBytes(absl::string_view character, std::vector<TokenId>& out) const;

  // In a GGUF file's: the token or the piece with this text.
  std::optional<TokenId> FindPiece(absl::string_view text) const;
  TokenId Piece(absl::string_view text);
  void EncodePieces(absl::string_view word, std::vector<TokenId>& out) const;
  void AddTokensOf(absl::string_view piece, std::vector<TokenId>& out) const;

  const TokenTable tokens_;
  absl::flat_hash_map<std::pair<TokenId, TokenId>, Merge> merges_;
  std::optional<TokenId> unknown_;
  std::vector<std::optional<TokenId>> bytes_;  // By byte, with byte_fallback_.
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;

  // The texts in the merges of a GGUF file that are no tokens. Their ids follow those of the
  // tokens, and are never returned.
  bool has_pieces_ = false;
  std::vector<std::string> pieces_;
  absl::flat_hash_map<std::string, TokenId> piece_ids_;

  mutable WordCache cache_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_VOCABULARY_BPE_H_
