// The name that a client gives a block in a keyed namespace. Its bytes mean nothing to Pagoda;
// mostly they are an engine's hash.
#ifndef PAGODA_EVENTS_CLIENT_KEY_H_
#define PAGODA_EVENTS_CLIENT_KEY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "pools/types.h"

namespace pagoda {

// 1 to kMaxBytes bytes, compared exactly. A value; there is no empty key.
//
// A key lies in memory as kWords words: its length, then its bytes, little-endian, padded with
// zeros. So the code that keeps, compares, hashes and writes the tokens of a block handles keys
// too. All keys have the same number of words, so no key is a prefix of another.
class ClientKey {
 public:
  static constexpr size_t kMaxBytes = 64;
  static constexpr size_t kWords = 1 + kMaxBytes / sizeof(TokenId);

  // Errors: INVALID_KEY (no bytes, or more than kMaxBytes).
  static absl::StatusOr<ClientKey> Make(std::string_view bytes);
  // The key with these words. nullopt if they are not the words of a key.
  static std::optional<ClientKey> FromWords(absl::Span<const TokenId> words);

  // These views are valid as long as the key.
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(words_.data() + 1), words_[0]};
  }
  absl::Span<const TokenId> words() const { return words_; }
  BlockKey block_key() const { return {.tokens = words_, .extras = {}, .keyed = true}; }

  friend bool operator==(const ClientKey&, const ClientKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const ClientKey& key) {
    return H::combine(std::move(h), key.words_);
  }

 private:
  ClientKey() = default;

  std::array<TokenId, kWords> words_ = {};
};

// The bytes of a keyed block's key. Refers to the memory that `key` refers to. REQUIRES: key.keyed.
std::string_view ClientKeyBytes(const BlockKey& key);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_CLIENT_KEY_H_
