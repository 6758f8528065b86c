// Answers the fetches of other daemons out of this daemon's memory, in the protocol of Redis.
#ifndef PAGODA_SERVER_PEERS_PEER_SERVER_H_
#define PAGODA_SERVER_PEERS_PEER_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pools/store/redis_socket.h"
#include "server/callers/watched_file.h"
#include "server/config/listen_address.h"
#include "server/peers/digest_index.h"
#include "server/peers/peer_cache.h"
#include "server/peers/peer_commands.h"

namespace pagoda::server {

// A plain Redis server, as RedisStore (pools/store/redis_store.h) and redis-cli see it, whose keys
// are the cached blocks in host memory. It can only be read. One thread serves all connections and
// all caches. Thread-safe.
//
// Invariants
// 1. PeerCache's: a value is the named block, or the client sees that it is not.
// 2. No connection waits for another one's client. Each has turns of a bounded length
//    (PeerConnection).
// 3. Memory is bounded: max_connections and kMaxStrangers times about 300 KiB, and the caches'
//    indexes.
// 4. After RemoveCache nothing touches the cache's memory.
// 5. Whoever has a token can read each block whose content and namespace he knows, of any tenant.
class PeerServer {
 public:
  static constexpr uint64_t kLeastBytesPerSecond = 4 << 20;
  // Strangers are connections that still owe the TLS handshake or their token. They have places of
  // their own. A stranger that comes when all are taken takes that of the oldest one of its own
  // network, or of the network that has the most.
  static constexpr size_t kMaxStrangers = 64;
  static constexpr size_t kMaxStrangersOfNetwork = 16;  // NetworkOf.

  struct Options {
    TcpAddress address;  // Port 0: any free one.
    // Without it, connections are not encrypted.
    std::optional<ServerTls> tls = std::nullopt;
    // A file of tokens (callers/tokens_file.h), one of which a client must show by AUTH or HELLO.
    // It is read again when it changes. Connections whose token is no longer there are closed.
    // Empty: no token is needed; only for loopback, with a tls.client_ca_file, or with kWarned.
    std::string tokens_file = {};
    Exposure exposure = Exposure::kRefused;  // The exposure that the files with secrets may have.
    std::string key_prefix = "pagoda:";      // See RedisOptions::key_prefix.
    std::string secret = {};                 // See RedisOptions::secret.
    std::string version = "0";               // The daemon's version, for people.

    size_t max_connections = 256;  // The most admitted connections. Further ones get an error.
    // How long a connection may take for the TLS handshake and its token.
    absl::Duration login_timeout = absl::Seconds(3);
    // How long a client may take to read a whole reply, in addition to a second for each
    // kLeastBytesPerSecond of it.
    absl::Duration stall_timeout = absl::Seconds(5);
    // How long a connection may be silent.
    absl::Duration idle_timeout = absl::Minutes(10);
  };

  // Listens. Errors: those of ListenOn, PeerTokens::Read and PeerTls::Load; INVALID_ARGUMENT
  // (numbers or times that are not positive, or everybody could read); ResourceExhausted (no thread
  // or descriptors).
  static absl::StatusOr<std::unique_ptr<PeerServer>> Start(Options options);
  // Calls Stop.
  ~PeerServer();

  TcpAddress address() const;  // With the port that the system chose.

  // Serves the cache from now on. `options.secret` has no effect. Errors: those of
  // PeerCache::Create; INVALID_ARGUMENT (the name is there already); Cancelled after Stop.
  absl::Status AddCache(PeerCache::Options options);
  // Does nothing if there is no such cache. Closes the connections to which values of the cache are
  // being sent: their clients see misses. Waits for this, for a few milliseconds. Must not be
  // called on the server's thread.
  void RemoveCache(const std::string& name);

  // Closes everything. Afterwards nothing touches any cache's memory. May be called more than once.
  void Stop();

  PeerStats stats() const;
  struct CacheStats {
    std::string name;
    DigestIndex::Stats index;
  };
  std::vector<CacheStats> cache_stats() const;

 private:
  class Loop;

  explicit PeerServer(std::unique_ptr<Loop> loop);

  const std::unique_ptr<Loop> loop_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_PEER_SERVER_H_
