// What a client names a block by, in a namespace that is keyed by its clients: bytes that mean
// nothing here, a hash of an engine's own mostly.
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
// A key lies in memory as the content of a block does, so that whatever keeps, compares, hashes and
// writes down the tokens of a block does so with a key: as kWords words, of which the first is the
// key's length, and the others its bytes, little-endian, with zeros behind them. All keys have as
// many words, so none is a beginning of another.
class ClientKey {
 public:
  static constexpr size_t kMaxBytes = 64;
  static constexpr size_t kWords = 1 + kMaxBytes / sizeof(TokenId);

  // Errors: INVALID_KEY (no bytes, or more than kMaxBytes).
  static absl::StatusOr<ClientKey> Make(std::string_view bytes);
  // The key with these words; none where they are no key's.
  static std::optional<ClientKey> FromWords(absl::Span<const TokenId> words);

  // Until the key ends, as those below.
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

// The bytes of the key that `key`, a keyed block's, refers to. REQUIRES: key.keyed.
std::string_view ClientKeyBytes(const BlockKey& key);

}  // namespace pagoda

#endif  // PAGODA_EVENTS_CLIENT_KEY_H_
