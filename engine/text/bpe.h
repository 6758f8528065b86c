// Byte pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword
// Units", 2016).
#ifndef PAGODA_ENGINE_TEXT_BPE_H_
#define PAGODA_ENGINE_TEXT_BPE_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "pools/types.h"

namespace pagoda {

// A `model` of type BPE of a tokenizer.json: a vocabulary, and the pairs of tokens that merge into
// one, the most important first. Thread-safe.
class Bpe {
 public:
  // Tokens have ids below this.
  static constexpr uint64_t kMaxTokens = 1 << 22;

  // Errors: INVALID_CHECKPOINT, which names the error or the unsupported part.
  static absl::StatusOr<std::unique_ptr<Bpe>> Parse(const nlohmann::json& model);

  // Appends the word's tokens. A character outside the vocabulary is left out if the model has no
  // token for unknown ones. Cost: O(n log n) in the word's bytes; short words are cached.
  void Encode(absl::string_view word, std::vector<TokenId>& out) const ABSL_LOCKS_EXCLUDED(mutex_);

  std::optional<TokenId> Find(absl::string_view token) const;
  // Null if no token has the id.
  const std::string* Token(TokenId id) const;
  // One more than the largest id.
  size_t size() const { return tokens_.size(); }

 private:
  struct Merge {
    uint32_t rank = 0;
    TokenId token = 0;
  };
  class Merger;

  absl::Status ReadVocabulary(const nlohmann::json& vocab);
  absl::Status ReadMerges(const nlohmann::json& merges);
  absl::Status AddMerge(absl::string_view left, absl::string_view right, uint32_t rank);

  void EncodeAnew(absl::string_view word, std::vector<TokenId>& out) const;
  // The tokens of the word's characters.
  std::vector<TokenId> Characters(absl::string_view word) const;
  bool AddBytes(absl::string_view character, std::vector<TokenId>& out) const;

  absl::node_hash_map<std::string, TokenId> ids_;
  std::vector<const std::string*> tokens_;  // By id: the keys of ids_, which do not move.
  absl::flat_hash_map<std::pair<TokenId, TokenId>, Merge> merges_;
  std::optional<TokenId> unknown_;
  std::vector<std::optional<TokenId>> bytes_;  // By byte, with byte_fallback_.
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;

  mutable absl::Mutex mutex_;
  mutable absl::flat_hash_map<std::string, std::vector<TokenId>> known_words_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_BPE_H_
