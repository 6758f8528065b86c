#include "events/client_key.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda {

static_assert(std::endian::native == std::endian::little, "a key's words are its bytes");

absl::StatusOr<ClientKey> ClientKey::Make(std::string_view bytes) {
  if (bytes.empty() || bytes.size() > kMaxBytes) {
    return MakeError(Reason::kInvalidKey, absl::StrCat("a key has ", bytes.size(), " bytes; 1 to ",
                                                       kMaxBytes, " are allowed"));
  }
  ClientKey key;
  key.words_[0] = static_cast<TokenId>(bytes.size());
  std::memcpy(key.words_.data() + 1, bytes.data(), bytes.size());
  return key;
}

std::optional<ClientKey> ClientKey::FromWords(absl::Span<const TokenId> words) {
  if (words.size() != kWords || words[0] == 0 || words[0] > kMaxBytes) return std::nullopt;
  ClientKey key;
  std::copy(words.begin(), words.end(), key.words_.begin());
  const auto* const bytes = reinterpret_cast<const char*>(words.data() + 1);
  const bool ends_in_zeros =
      std::all_of(bytes + words[0], bytes + kMaxBytes, [](char byte) { return byte == 0; });
  if (!ends_in_zeros) return std::nullopt;
  return key;
}

std::string_view ClientKeyBytes(const BlockKey& key) {
  PAGODA_CHECK(key.keyed && key.tokens.size() == ClientKey::kWords, "a keyed block has a key");
  return {reinterpret_cast<const char*>(key.tokens.data() + 1), key.tokens[0]};
}

}  // namespace pagoda
