// The sections store, peers and fetch.
#include <gtest/gtest.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/config/config.h"

namespace pagoda::server {
namespace {

absl::StatusOr<Config> Parse(const std::string& text) { return ParseConfig(text, "pagodad.yaml"); }

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Config> config = Parse(text);
  return config.ok() ? "none" : std::string(config.status().message());
}

TEST(StoreConfigTest, NothingIsExchangedUnlessAsked) {
  const absl::StatusOr<Config> config = Parse("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->exchanges());
  EXPECT_FALSE(config->store.enabled());
  EXPECT_FALSE(config->peers.fetches());
  EXPECT_EQ(config->peers.address, "");
}

TEST(StoreConfigTest, AllKeysAreReadAndPrinted) {
  const std::string text = R"(
server: {insecure: true}
tenants: [{name: alice, tokens_file: a}, {name: bob, tokens_file: b}]
store:
  servers: ["one:6379", "[::1]:6380"]
  allowed_networks: ["10.0.0.0/8"]
  key_prefix: "p:"
  secret_file: secret
  username: user
  password_file: password
  tls: {enabled: true, ca: ca, certificate: c, key: k}
  read_from_replicas: true
  connections: 3
  pipeline: 8
  publish: {enabled: true, min_uses: 2, bytes_per_second: 1000, time_to_live: 1h, delay: 50ms, tenants: [bob]}
peers:
  address: "0.0.0.0:7072"
  advertised: "node-1:7072"
  tokens_file: peers
  certificate: c2
  key: k2
  client_ca: ca2
  max_connections: 7
  sources: ["node-*:7072", "10.0.0.1:7072"]
  source_token_file: token
  source_tls: {enabled: true, ca: ca3}
fetch: {base: 10ms, per_thousand_tokens: 20ms, recompute_tokens_per_second: 5000, max_waiting: 9}
)";
  const absl::StatusOr<Config> config = Parse(text);
  ASSERT_TRUE(config.ok()) << config.status();
  for (const Config& read : {*config, *Parse(PrintConfig(*config))}) {
    const Config::Store& store = read.store;
    EXPECT_EQ(store.servers, (std::vector<std::string>{"one:6379", "[::1]:6380"}));
    EXPECT_EQ(store.allowed_networks, std::vector<std::string>{"10.0.0.0/8"});
    EXPECT_EQ(store.key_prefix, "p:");
    EXPECT_EQ(store.secret_file, "secret");
    EXPECT_EQ(store.username, "user");
    EXPECT_EQ(store.password_file, "password");
    EXPECT_TRUE(store.tls.enabled);
    EXPECT_EQ(store.tls.ca, "ca");
    EXPECT_EQ(store.tls.certificate, "c");
    EXPECT_EQ(store.tls.key, "k");
    EXPECT_TRUE(store.read_from_replicas);
    EXPECT_EQ(store.connections, 3u);
    EXPECT_EQ(store.pipeline, 8u);
    EXPECT_EQ(store.publish.min_uses, 2u);
    EXPECT_EQ(store.publish.bytes_per_second, 1000u);
    EXPECT_EQ(store.publish.time_to_live, absl::Hours(1));
    EXPECT_EQ(store.publish.delay, absl::Milliseconds(50));
    EXPECT_EQ(store.publish.tenants, std::vector<std::string>{"bob"});
    const Config::Peers& peers = read.peers;
    EXPECT_EQ(peers.address, "0.0.0.0:7072");
    EXPECT_EQ(peers.AdvertisedAddress(), "node-1:7072");
    EXPECT_EQ(peers.tokens_file, "peers");
    EXPECT_EQ(peers.certificate, "c2");
    EXPECT_EQ(peers.key, "k2");
    EXPECT_EQ(peers.client_ca, "ca2");
    EXPECT_EQ(peers.max_connections, 7u);
    EXPECT_EQ(peers.sources, (std::vector<std::string>{"node-*:7072", "10.0.0.1:7072"}));
    EXPECT_EQ(peers.source_token_file, "token");
    EXPECT_TRUE(peers.source_tls.enabled);
    EXPECT_EQ(peers.source_tls.ca, "ca3");
    EXPECT_EQ(read.fetch.base, absl::Milliseconds(10));
    EXPECT_EQ(read.fetch.per_1k_tokens, absl::Milliseconds(20));
    EXPECT_EQ(read.fetch.recompute_tokens_per_second, 5000u);
    EXPECT_EQ(read.fetch.max_waiting, 9u);
    EXPECT_TRUE(read.exchanges());
  }
}

TEST(StoreConfigTest, BadAddressesAreRefused) {
  EXPECT_EQ(
      ErrorOf("store: {servers: [redis]}"),
      "pagodad.yaml: store.servers: 'redis' is not HOST:PORT: it has no port, as in redis:7070");
  EXPECT_EQ(ErrorOf("store: {servers: ['redis:x']}"),
            "pagodad.yaml: store.servers: 'redis:x' is not HOST:PORT: its port 'x' is no number up "
            "to 65535");
  EXPECT_EQ(
      ErrorOf("peers: {address: '127.0.0.1:1', advertised: node}"),
      "pagodad.yaml: peers.advertised: 'node' is not HOST:PORT: it has no port, as in node:7070");
  EXPECT_EQ(ErrorOf("peers: {advertised: 'node:1'}"),
            "pagodad.yaml: peers.advertised is set, and peers.address is not");
}

TEST(StoreConfigTest, NetworksAreChecked) {
  EXPECT_EQ(ErrorOf("store: {servers: ['a:1'], allowed_networks: [10.0.0.0/40]}"),
            "pagodad.yaml: store.allowed_networks: '10.0.0.0/40' is not a network like 10.0.0.0/8 "
            "or fd00::/8");
}

TEST(StoreConfigTest, KeysThatHaveNoEffectAreRefused) {
  EXPECT_EQ(ErrorOf("store: {servers: ['a:1'], tls: {ca: x}}"),
            "pagodad.yaml: store.tls names files, and store.tls.enabled is false");
  EXPECT_EQ(ErrorOf("peers: {source_tls: {enabled: true, key: x}}"),
            "pagodad.yaml: peers.source_tls.certificate and peers.source_tls.key go together; one "
            "of them is empty");
  EXPECT_EQ(ErrorOf("store: {servers: ['a:1'], username: x}"),
            "pagodad.yaml: store.username is set, and store.password_file is not");
  EXPECT_EQ(ErrorOf("store: {servers: ['a:1'], publish: {tenants: [eve]}}"),
            "pagodad.yaml: store.publish.tenants: there is no tenant 'eve'");
  EXPECT_EQ(ErrorOf("peers: {address: '127.0.0.1:1', certificate: x}"),
            "pagodad.yaml: peers.certificate and peers.key go together; one of them is empty");
}

TEST(StoreConfigTest, PeersShowTokensWhereCallersDo) {
  for (const char* const callers :
       {"tenants: [{name: a, tokens_file: t}]", "operators: {tokens_file: t}"}) {
    for (const char* const insecure : {"", "server: {insecure: true}\n"}) {
      const std::string text =
          std::string(insecure) + callers + "\npeers: {address: '127.0.0.1:7072'";
      EXPECT_EQ(
          ErrorOf(text + "}"),
          "pagodad.yaml: peers.address 127.0.0.1:7072 would let every process read the blocks "
          "of the configured tenants without credentials: set peers.tokens_file or "
          "peers.client_ca");
      EXPECT_EQ(ErrorOf(text + ", tokens_file: x}"), "none");
    }
  }
}

TEST(StoreConfigTest, StrangersCannotReadBlocks) {
  EXPECT_EQ(ErrorOf("peers: {address: '127.0.0.1:7072'}"), "none");
  EXPECT_EQ(ErrorOf("peers: {address: '0.0.0.0:7072'}"),
            "pagodad.yaml: peers.address 0.0.0.0:7072 would let every machine read cached blocks: "
            "set peers.tokens_file or peers.client_ca, listen on loopback, or say server.insecure: "
            "true");
  EXPECT_EQ(ErrorOf("peers: {address: '0.0.0.0:7072', tokens_file: x}"),
            "pagodad.yaml: peers.address 0.0.0.0:7072 would send blocks and tokens to other "
            "machines without TLS: set peers.certificate and key, listen on loopback, or say "
            "server.insecure: true");
  EXPECT_EQ(ErrorOf("peers: {address: '0.0.0.0:7072', tokens_file: x, certificate: c, key: k}"),
            "none");
}

}  // namespace
}  // namespace pagoda::server
