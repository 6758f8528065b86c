// The tokenizer of a GGUF file, by llama.cpp's rules.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_TOKENIZER_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_TOKENIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/checkpoint/gguf/gguf_values.h"
#include "engine/text/tokenizer/decoder.h"
#include "engine/text/tokenizer/gguf_vocabulary.h"
#include "engine/text/tokenizer/gguf_words.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/vocabulary/bpe.h"
#include "engine/text/vocabulary/score_bpe.h"
#include "engine/text/vocabulary/special_token_finder.h"
#include "engine/text/vocabulary/word_cache.h"
#include "pools/types.h"

namespace pagoda {

// See Tokenizer. The special tokens around a text are the file's bos and eos, if it adds them.
// Control and unknown tokens are special; those of users are found in a text too, but shown.
class GgufTokenizer final : public Tokenizer {
 public:
  // Implements Tokenizer::FromGguf.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Make(const GgufMetadata& metadata);

  std::optional<TokenId> Find(absl::string_view token) const override;
  const std::string* Token(TokenId id) const override;
  bool IsSpecial(TokenId id) const override;
  size_t size() const override { return types_.size(); }
  std::optional<TokenId> bos_token() const override { return bos_; }
  std::optional<TokenId> eos_token() const override { return eos_; }
  std::vector<TokenId> end_tokens() const override { return end_tokens_; }

 private:
  GgufTokenizer() = default;

  absl::Status AddSpecialTokens(const GgufVocabulary& vocabulary);
  const TokenTable& tokens() const { return bpe_ ? bpe_->tokens() : scores_->tokens(); }

  absl::Status EncodePart(absl::string_view text, absl::Time deadline,
                          std::vector<TokenId>& out) const;
  void EncodeWord(absl::string_view word, std::vector<TokenId>& out) const;
  Decoder::Piece PieceOf(TokenId id, const std::string& text) const;

  absl::Status EncodeText(absl::string_view text, SpecialTokens around, absl::Time deadline,
                          std::vector<TokenId>& out) const override;
  std::string DecodeToken(TokenId id, const std::string& text,
                          Decoder::State& state) const override;
  std::string FinishText(Decoder::State& state) const override { return decoder_.Finish(state); }
  std::string BytesOfToken(TokenId id, const std::string& text,
                           Decoder::Place place) const override {
    return decoder_.BytesOfPiece(PieceOf(id, text), place);
  }

  // One of the two.
  std::unique_ptr<Bpe> bpe_;
  std::unique_ptr<ScoreBpe> scores_;

  GgufWords words_;  // With bpe_.
  bool has_visible_spaces_ = false;
  bool joins_newlines_ = false;
  bool add_space_prefix_ = false;
  std::vector<GgufTokenType> types_;
  SpecialTokenFinder finder_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  std::vector<TokenId> end_tokens_;
  Decoder decoder_;
  mutable WordCache cache_;  // Caches words before their bytes become visible.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_GGUF_TOKENIZER_H_
