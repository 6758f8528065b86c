#include "server/peers/peer_tokens.h"

#include <openssl/crypto.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/log/log.h"

namespace pagoda::server {

absl::StatusOr<PeerTokens> PeerTokens::Read(std::string path, Exposure exposure) {
  PeerTokens tokens(std::move(path), exposure);
  if (!tokens.are_required()) return tokens;
  tokens.stamp_ = StampOf(tokens.path_);
  absl::StatusOr<std::vector<TokenDigest>> read = tokens.ReadFile();
  if (!read.ok()) return read.status();
  tokens.tokens_ = *std::move(read);
  return tokens;
}

absl::StatusOr<std::vector<TokenDigest>> PeerTokens::ReadFile() const {
  absl::StatusOr<std::vector<TokenDigest>> read = ReadTokensFile(path_, exposure_);
  if (read.ok() && read->empty()) return InvalidArgument(absl::StrCat(path_, " has no token"));
  return read;
}

std::optional<TokenDigest> PeerTokens::Check(absl::string_view token) const {
  const TokenDigest digest = DigestOf(token);
  return Knows(digest) ? std::optional(digest) : std::nullopt;
}

bool PeerTokens::Knows(const TokenDigest& digest) const {
  bool is_known = false;
  for (const TokenDigest& known : tokens_) {
    const bool is_this = CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
    is_known = is_this | is_known;
  }
  return is_known;
}

bool PeerTokens::Refresh() {
  if (!are_required()) return false;
  // Before the file is read: a change during the reading is found the next time.
  const FileStamp now = StampOf(path_);
  if (now == stamp_) return false;
  stamp_ = now;
  absl::StatusOr<std::vector<TokenDigest>> read = ReadFile();
  if (!read.ok()) {
    Log(LogLevel::kError, absl::StrCat("peers: the new tokens are not valid; the earlier ones stay "
                                       "in use: ",
                                       std::string(read.status().message())));
    return false;
  }
  if (*read == tokens_) return false;
  tokens_ = *std::move(read);
  Log(LogLevel::kInfo, absl::StrCat("peers: now using the new tokens in ", path_));
  return true;
}

}  // namespace pagoda::server
