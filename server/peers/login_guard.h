// Makes guesses of tokens slow.
#ifndef PAGODA_SERVER_PEERS_LOGIN_GUARD_H_
#define PAGODA_SERVER_PEERS_LOGIN_GUARD_H_

#include <sys/socket.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// The network that a caller counts for: its IPv4 address, or the first 64 bits of its IPv6 address,
// because one host has all addresses below them.
std::string NetworkOf(const sockaddr_storage& address);

// The wrong tokens of each network. After kFree of them, the network waits before its next token is
// checked, twice as long each time, and kLongest at most. Right tokens from there wait too, so
// kLongest is short. The first kFree tokens count once, however often they come: a daemon that was
// given the wrong token tries it for ever, and guesses nothing. A network without a further wrong
// token for kForgotten is forgotten. Thread-compatible.
class LoginGuard {
 public:
  static constexpr int kFree = 3;
  static constexpr absl::Duration kFirst = absl::Milliseconds(250);
  static constexpr absl::Duration kLongest = absl::Seconds(2);
  static constexpr absl::Duration kForgotten = absl::Minutes(1);
  static constexpr size_t kMaxNetworks = 4096;  // The one that failed the longest ago leaves.

  // How long the network must wait before a token of it is checked; 0: not at all.
  absl::Duration Wait(const std::string& network, absl::Time now) const;
  // A token was wrong.
  void Failed(const std::string& network, const TokenDigest& token, absl::Time now);

 private:
  struct Failures {
    int count = 0;
    std::vector<TokenDigest> first;  // At most kFree.
    absl::Time last = absl::InfinitePast();
    absl::Time next_try = absl::InfinitePast();
  };

  absl::flat_hash_map<std::string, Failures> networks_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_LOGIN_GUARD_H_
