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

// Bounds the rate of wrong tokens of each network: kFree at once, and one more each kInterval. Only
// above that rate the network waits before its next token is checked: kInterval, and longer while
// others there show tokens first. A right token would have to wait then too, because only the check
// shows whether it is right. At this rate a guess of a token of 16 characters (kMinTokenLength)
// does not succeed in years, and the few wrong tokens of one host keep no other one of its network
// out.
//
// The first kFree tokens count once, however often they come: a daemon that was given the wrong
// token tries it for ever, and guesses nothing. A network is forgotten kForgotten after it could
// show kFree wrong tokens again. Thread-compatible.
class LoginGuard {
 public:
  static constexpr int kFree = 16;
  static constexpr absl::Duration kInterval = absl::Milliseconds(125);
  static constexpr absl::Duration kForgotten = absl::Minutes(1);
  static constexpr size_t kMaxNetworks = 4096;  // The one with the earliest `paid` leaves.

  // How long the network must wait before a token of it is checked; 0: not at all.
  absl::Duration Wait(const std::string& network, absl::Time now) const;
  // A token was wrong.
  void Failed(const std::string& network, const TokenDigest& token, absl::Time now);

 private:
  struct Failures {
    std::vector<TokenDigest> first;  // At most kFree.
    // When the network can show kFree wrong tokens again. Each adds kInterval.
    absl::Time paid = absl::InfinitePast();
  };

  absl::flat_hash_map<std::string, Failures> networks_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_LOGIN_GUARD_H_
