// The tokens of a vocabulary, by id and by text.
#ifndef PAGODA_ENGINE_TEXT_VOCABULARY_TOKEN_TABLE_H_
#define PAGODA_ENGINE_TEXT_VOCABULARY_TOKEN_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "pools/types.h"

namespace pagoda {

// Every text is one token's, and every id has at most one text. Tokens stay where they are, also
// when the table moves. Thread-compatible.
class TokenTable {
 public:
  // Tokens have ids below this.
  static constexpr uint64_t kMaxTokens = 1 << 22;

  // Has no tokens yet, and expects `count` of them. REQUIRES: size <= kMaxTokens.
  TokenTable(size_t size, size_t count);

  enum class Added : uint8_t { kNew, kIdTaken, kTextTaken };
  // Changes nothing unless it returns kNew. REQUIRES: id < size().
  Added Add(TokenId id, std::string text);

  std::optional<TokenId> Find(absl::string_view text) const;
  // Null if no token has the id.
  const std::string* Token(TokenId id) const;
  // One more than the largest possible id.
  size_t size() const { return tokens_.size(); }

 private:
  std::deque<std::string> texts_;
  std::vector<const std::string*> tokens_;               // By id: texts_, or null.
  absl::flat_hash_map<absl::string_view, TokenId> ids_;  // By texts_.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_TEXT_VOCABULARY_TOKEN_TABLE_H_
