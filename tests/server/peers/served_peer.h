// A daemon's side and a client's side of fetches between peers, for tests.
#ifndef PAGODA_TESTS_SERVER_PEERS_SERVED_PEER_H_
#define PAGODA_TESTS_SERVER_PEERS_SERVED_PEER_H_

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/file_descriptor.h"
#include "manager/exchange/block_exchange.h"
#include "manager/exchange/stored_prefix.h"
#include "pools/store/redis_store.h"
#include "pools/store/stored_value.h"
#include "server/peers/peer_server.h"
#include "tests/manager/exchange/exchange_fixture.h"
#include "tests/manager/exchange/exchanged_cache.h"

namespace pagoda::server {

inline std::unique_ptr<PeerServer> StartPeer(PeerServer::Options options = {}) {
  options.address = {.host = "127.0.0.1", .port = 0};
  absl::StatusOr<std::unique_ptr<PeerServer>> server = PeerServer::Start(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

inline void Serve(PeerServer& server, ExchangedCache& cache, const std::string& name = "cache") {
  const absl::Status status =
      server.AddCache({.name = name, .manager = &cache.manager(), .pools = &cache.pools()});
  EXPECT_TRUE(status.ok()) << status;
}

inline RedisAddress AddressOf(const PeerServer& server) {
  return {server.address().host, server.address().port};
}

// A copy of the server's descriptor of a client's TCP connection. The server is in this process.
inline FileDescriptor CopyOfOtherEnd(int client) {
  sockaddr_in6 ours = {};
  socklen_t size = sizeof ours;
  getsockname(client, reinterpret_cast<sockaddr*>(&ours), &size);
  for (int fd = 0; fd < 4096; ++fd) {
    sockaddr_in6 theirs = {};
    size = sizeof theirs;
    // IPv4's port is at the same place.
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &size) == 0 &&
        theirs.sin6_family == ours.sin6_family && theirs.sin6_port == ours.sin6_port) {
      return FileDescriptor(dup(fd));
    }
  }
  return FileDescriptor();
}

// The name of a whole block of the tokens.
inline std::string NameOf(ExchangedCache& cache, const Tokens& tokens, uint32_t block,
                          const std::string& secret = "", const NamespaceKey& name_space = {}) {
  const ContentDigest digest = DigestsOf({.name_space = name_space, .tokens = tokens},
                                         TokensPerBlock(kBlockTokens), block + 1)
                                   .back();
  return StoredName("pagoda:", secret,
                    {.layout = StoredLayout(cache.pools().layout(), 0).bytes,
                     .digest = digest.bytes,
                     .window_size = 0});
}

// A machine that fetches from a peer.
struct FetchingPeer {
  explicit FetchingPeer(RedisOptions options,
                        ExchangedCache::Options cache_options = {.blocks = 128},
                        BlockExchange::Options exchange_options = {.fetch_base = absl::Seconds(20)})
      : cache(cache_options) {
    options.max_backoff = absl::Milliseconds(300);
    store = *RedisStore::Create(std::move(options));
    exchange =
        *BlockExchange::Create(&cache.manager(), &cache.pools(), store.get(), exchange_options);
  }
  explicit FetchingPeer(const PeerServer& server)
      : FetchingPeer(RedisOptions{.seeds = {AddressOf(server)}}) {}

  FetchedPrefix Fetch(const Tokens& tokens) {
    const FetchedPrefix fetched = pagoda::Fetch(*exchange, tokens);
    EXPECT_TRUE(cache.NothingHeld());
    return fetched;
  }

  ExchangedCache cache;
  std::unique_ptr<RedisStore> store;
  std::unique_ptr<BlockExchange> exchange;
};

}  // namespace pagoda::server

#endif  // PAGODA_TESTS_SERVER_PEERS_SERVED_PEER_H_
