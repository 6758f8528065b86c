// The commands of Redis that a daemon answers.
#ifndef PAGODA_SERVER_PEERS_PEER_COMMANDS_H_
#define PAGODA_SERVER_PEERS_PEER_COMMANDS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/metric.h"
#include "server/callers/identity.h"
#include "server/peers/login_guard.h"
#include "server/peers/peer_cache.h"
#include "server/peers/peer_tokens.h"
#include "server/peers/reply_queue.h"

namespace pagoda::server {

// Counts since the server started. One key counts as one.
struct PeerStats {
  uint64_t connections = 0;
  uint64_t accepted = 0;  // Also of strangers.
  uint64_t refused = 0;
  uint64_t failed = 0;
  uint64_t commands = 0;  // Also those that got an error.
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t refused_gets = 0;
  uint64_t exists = 0;  // Keys of EXISTS and STRLEN.
  uint64_t authentication_failures = 0;
  uint64_t bytes_sent = 0;        // Everything, as before TLS.
  uint64_t value_bytes_sent = 0;  // Bytes of the values that were begun, with their headers.
};

// Without a label.
inline constexpr Metric<PeerStats> kPeerMetrics[] = {
    {&PeerStats::hits,
     "pagoda_peer_gets_total",
     "hits_total",
     "Blocks that other daemons asked for, by outcome. hit, miss; refused: the connection has "
     "shown no token.",
     {"outcome", "hit"}},
    {&PeerStats::misses, "pagoda_peer_gets_total", "misses_total", "", {"outcome", "miss"}},
    {&PeerStats::refused_gets,
     "pagoda_peer_gets_total",
     "refused_gets_total",
     "",
     {"outcome", "refused"}},
    {&PeerStats::exists, "pagoda_peer_exists_total", "",
     "Blocks of which other daemons asked whether they are cached."},
    {&PeerStats::commands, "pagoda_peer_commands_total", "", "Commands of other daemons."},
    {&PeerStats::bytes_sent, "pagoda_peer_sent_bytes_total", "", "Bytes sent to other daemons."},
    {&PeerStats::value_bytes_sent, "pagoda_peer_value_bytes_total", "value_bytes_total",
     "Bytes of the blocks sent to other daemons."},
    {&PeerStats::connections, "pagoda_peer_connections", "connections",
     "Connections of other daemons."},
    {&PeerStats::accepted, "pagoda_peer_accepted_connections_total", "accepted_total",
     "Connections of other daemons that were accepted."},
    {&PeerStats::refused, "pagoda_peer_refused_connections_total", "refused_total",
     "Connections that were beyond peers.max_connections, or lost their place before they showed a "
     "token."},
    {&PeerStats::failed, "pagoda_peer_failed_connections_total", "failed_total",
     "Connections that an error of the protocol or of TLS, or a time-out, has closed."},
    {&PeerStats::authentication_failures, "pagoda_peer_authentication_failures_total",
     "authentication_failures_total",
     "Tokens that the daemon does not know, or does not check because too many wrong ones came "
     "from the same address."},
};
static_assert(EachFieldHasARow(kPeerMetrics), "a field has no row");

// What a connection has told about itself.
struct PeerSession {
  uint64_t number = 0;               // The connection's number.
  std::optional<TokenDigest> token;  // The token that it showed.
  int failures = 0;                  // Wrong tokens.
  std::string network;               // NetworkOf its address.
  absl::Time now;                    // The time of its current turn.
  bool is_let_in = false;            // It may read.
  bool is_closing = false;           // It is closed when its replies are sent.
};

// Runs commands one by one. Only for the server's thread.
class PeerCommands {
 public:
  struct Options {
    std::string key_prefix;  // Before the names of blocks.
    std::string version;     // The daemon's version, for INFO and HELLO.
  };
  using Caches = std::vector<std::shared_ptr<PeerCache>>;

  // All must outlive this object.
  PeerCommands(const Options& options, const PeerTokens& tokens, const Caches& caches,
               PeerStats& stats)
      : options_(options), tokens_(tokens), caches_(caches), stats_(stats) {}

  // Appends the reply to one command. REQUIRES: at least one argument, which is the command's name.
  // `is_cut`: an argument is not whole.
  void Run(absl::Span<const std::string> arguments, bool is_cut, PeerSession& session,
           ReplyQueue& out);

 private:
  using Arguments = absl::Span<const std::string>;
  using Handler = void (PeerCommands::*)(Arguments, PeerSession&, ReplyQueue&);
  struct Command;

  static const Command* Find(absl::string_view name);

  void Ping(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Echo(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Ok(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void EmptyArray(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Auth(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Hello(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Quit(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Select(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Cluster(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Info(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void DbSize(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Get(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void Exists(Arguments arguments, PeerSession& session, ReplyQueue& out);
  void StrLen(Arguments arguments, PeerSession& session, ReplyQueue& out);

  // Whether the token lets the session in. On failure `out` has the error.
  bool LetIn(absl::string_view token, PeerSession& session, ReplyQueue& out);
  // The bytes of the values that exist, in the order of the names; 0: none.
  std::vector<uint64_t> SizesOf(Arguments names);

  const Options& options_;
  const PeerTokens& tokens_;
  const Caches& caches_;
  PeerStats& stats_;
  LoginGuard guard_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_PEER_COMMANDS_H_
