// A Hugging Face tokenizer.json.
#ifndef PAGODA_ENGINE_TEXT_TOKENIZER_JSON_TOKENIZER_H_
#define PAGODA_ENGINE_TEXT_TOKENIZER_JSON_TOKENIZER_H_

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/text/split/normalizer.h"
#include "engine/text/split/pre_tokenizer.h"
#include "engine/text/tokenizer/decoder.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "engine/text/vocabulary/added_tokens.h"
#include "engine/text/vocabulary/bpe.h"
#include "pools/types.h"

namespace pagoda {

// See Tokenizer. The special tokens around a text are those of the `post_processor`.
class JsonTokenizer final : public Tokenizer {
 public:
  // Implements Tokenizer::Parse.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view json);

  std::optional<TokenId> Find(absl::string_view token) const override;
  const std::string* Token(TokenId id) const override;
  bool IsSpecial(TokenId id) const override;
  size_t size() const override { return size_; }

 private:
  JsonTokenizer() = default;

  absl::Status Read(const nlohmann::json& root);
  absl::Status ReadPostProcessor(const nlohmann::json& json, int depth);
  absl::Status ReadTemplate(const nlohmann::json& json);
  absl::Status AddFinders();
  absl::Status EncodePart(absl::string_view text, bool begins_text, absl::Time deadline,
                          std::vector<TokenId>& out) const;

  absl::Status EncodeText(absl::string_view text, SpecialTokens around, absl::Time deadline,
                          std::vector<TokenId>& out) const override;
  std::string DecodeToken(TokenId id, const std::string& text,
                          Decoder::State& state) const override;
  std::string FinishText(Decoder::State& state) const override { return decoder_.Finish(state); }
  std::string BytesOfToken(TokenId /*id*/, const std::string& text,
                           Decoder::Place place) const override {
    return decoder_.BytesOf(text, place);
  }

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

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_TOKENIZER_JSON_TOKENIZER_H_
