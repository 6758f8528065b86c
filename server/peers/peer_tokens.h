// The tokens with which other daemons may read.
#ifndef PAGODA_SERVER_PEERS_PEER_TOKENS_H_
#define PAGODA_SERVER_PEERS_PEER_TOKENS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/callers/identity.h"
#include "server/callers/tokens_file.h"
#include "server/callers/watched_file.h"

namespace pagoda::server {

// Thread-compatible.
class PeerTokens {
 public:
  // An empty path: everybody may read. Errors: those of ReadTokensFile; INVALID_ARGUMENT if the
  // file has no token.
  static absl::StatusOr<PeerTokens> Read(std::string path, Exposure exposure);

  bool are_required() const { return !path_.empty(); }
  // The token's digest; nothing if it is not valid. The time reveals nothing about valid tokens.
  std::optional<TokenDigest> Check(absl::string_view token) const;
  // Whether a token that was valid still is.
  bool Knows(const TokenDigest& digest) const;
  // Reads the file again if it has changed. If it is not valid then, the earlier tokens stay, and
  // the log gives the reason. Returns whether the tokens are new.
  bool Refresh();

 private:
  PeerTokens(std::string path, Exposure exposure) : path_(std::move(path)), exposure_(exposure) {}
  absl::StatusOr<std::vector<TokenDigest>> ReadFile() const;

  std::string path_;
  Exposure exposure_;
  FileStamp stamp_;  // The stamp at the last read.
  std::vector<TokenDigest> tokens_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_PEER_TOKENS_H_
