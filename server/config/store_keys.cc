#include "server/config/store_keys.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/address_form.h"
#include "base/error.h"
#include "manager/words/block_facts.h"
#include "pools/store/cluster_map.h"
#include "pools/store/server_networks.h"
#include "server/config/listen_address.h"
#include "server/config/source_patterns.h"

namespace pagoda::server {
namespace {

std::vector<ConfigKey> ClientTlsKeys(Config::Store::Tls* tls) {
  return {FlagKey("enabled", &tls->enabled), TextKey("ca", &tls->ca),
          TextKey("certificate", &tls->certificate), TextKey("key", &tls->key)};
}

absl::Status CheckClientTls(const std::string& section, const Config::Store::Tls& tls) {
  if (!tls.enabled && !(tls.ca.empty() && tls.certificate.empty() && tls.key.empty())) {
    return InvalidArgument(
        absl::StrCat(section, " names files, and ", section, ".enabled is false"));
  }
  if (tls.certificate.empty() != tls.key.empty()) {
    return InvalidArgument(absl::StrCat(section, ".certificate and ", section,
                                        ".key go together; one of them is empty"));
  }
  return absl::OkStatus();
}

absl::Status CheckHostPort(const std::string& key, const std::string& address) {
  const absl::StatusOr<RedisAddress> parsed = ParseRedisAddress(address);
  if (parsed.ok() && absl::EndsWith(address, absl::StrCat(":", parsed->port))) {
    return absl::OkStatus();
  }
  const std::string mistake = AddressMistake(address);
  return InvalidArgument(absl::StrCat(key, ": '", address, "' is not HOST:PORT",
                                      mistake.empty() ? "" : absl::StrCat(": ", mistake)));
}

}  // namespace

std::vector<ConfigKey> StoreKeys(Config::Store* store) {
  Config::Store::Publish& publish = store->publish;
  return {
      TextListKey("servers", &store->servers),
      TextListKey("allowed_networks", &store->allowed_networks),
      TextKey("key_prefix", &store->key_prefix),
      TextKey("secret_file", &store->secret_file),
      TextKey("username", &store->username),
      TextKey("password_file", &store->password_file),
      SectionKey("tls", ClientTlsKeys(&store->tls)),
      FlagKey("read_from_replicas", &store->read_from_replicas),
      NumberKey("connections", &store->connections, 1, 64),
      NumberKey("pipeline", &store->pipeline, 1, 1024),
      SectionKey("publish",
                 {FlagKey("enabled", &publish.enabled),
                  NumberKey("min_uses", &publish.min_uses, 0, BlockFacts::kMaxUses),
                  NumberKey("bytes_per_second", &publish.bytes_per_second, 0, uint64_t{1} << 50),
                  DurationKey("time_to_live", &publish.time_to_live, absl::Milliseconds(1),
                              absl::Hours(24 * 365 * 10)),
                  DurationKey("delay", &publish.delay, absl::ZeroDuration(), absl::Hours(1)),
                  TextListKey("tenants", &publish.tenants)}),
  };
}

std::vector<ConfigKey> PeersKeys(Config::Peers* peers) {
  return {
      TextKey("address", &peers->address),
      TextKey("advertised", &peers->advertised),
      TextKey("tokens_file", &peers->tokens_file),
      TextKey("certificate", &peers->certificate),
      TextKey("key", &peers->key),
      TextKey("client_ca", &peers->client_ca),
      NumberKey("max_connections", &peers->max_connections, 1, 65'536),
      TextListKey("sources", &peers->sources),
      TextKey("source_token_file", &peers->source_token_file),
      SectionKey("source_tls", ClientTlsKeys(&peers->source_tls)),
  };
}

std::vector<ConfigKey> FetchKeys(Config::Fetch* fetch) {
  return {
      DurationKey("base", &fetch->base, absl::Milliseconds(1), absl::Minutes(10)),
      DurationKey("per_thousand_tokens", &fetch->per_1k_tokens, absl::ZeroDuration(),
                  absl::Minutes(10)),
      NumberKey("recompute_tokens_per_second", &fetch->recompute_tokens_per_second, 0,
                std::numeric_limits<uint32_t>::max()),
      NumberKey("max_waiting", &fetch->max_waiting, 1, 1 << 20),
  };
}

std::vector<std::string*> StorePaths(Config& config) {
  Config::Store& store = config.store;
  Config::Peers& peers = config.peers;
  return {&store.secret_file,      &store.password_file,
          &store.tls.ca,           &store.tls.certificate,
          &store.tls.key,          &peers.tokens_file,
          &peers.certificate,      &peers.key,
          &peers.client_ca,        &peers.source_tls.ca,
          &peers.source_tls.key,   &peers.source_tls.certificate,
          &peers.source_token_file};
}

absl::Status CheckStore(const Config& config) {
  const Config::Store& store = config.store;
  for (const std::string& server : store.servers) {
    if (absl::Status status = CheckHostPort("store.servers", server); !status.ok()) return status;
  }
  const absl::Status networks = ServerNetworks::Parse(store.allowed_networks).status();
  if (!networks.ok()) {
    return InvalidArgument(absl::StrCat("store.allowed_networks: ", networks.message()));
  }
  if (!store.username.empty() && store.password_file.empty()) {
    return InvalidArgument("store.username is set, and store.password_file is not");
  }
  for (const std::string& name : store.publish.tenants) {
    if (name.empty()) continue;  // The default tenant.
    const bool known =
        std::any_of(config.tenants.begin(), config.tenants.end(),
                    [&](const Config::Tenant& tenant) { return tenant.name == name; });
    if (!known) {
      return InvalidArgument(
          absl::StrCat("store.publish.tenants: there is no tenant '", name, "'"));
    }
  }
  return CheckClientTls("store.tls", store.tls);
}

absl::Status CheckPeers(const Config& config) {
  const Config::Peers& peers = config.peers;
  if (absl::Status status = SourcePatterns::Parse(peers.sources).status(); !status.ok()) {
    return status;
  }
  const bool stays_here =
      std::all_of(peers.sources.begin(), peers.sources.end(), [](const std::string& source) {
        return absl::StartsWith(source, "127.") || absl::StartsWith(source, "localhost:") ||
               absl::StartsWith(source, "[::1]:");
      });
  if (!peers.source_token_file.empty() && !peers.source_tls.enabled && !stays_here &&
      !config.server.insecure) {
    return InvalidArgument(
        "peers.source_token_file would be shown to other machines without TLS: set "
        "peers.source_tls.enabled, name only loopback in peers.sources, or say server.insecure: "
        "true");
  }
  if (peers.certificate.empty() != peers.key.empty()) {
    return InvalidArgument("peers.certificate and peers.key go together; one of them is empty");
  }
  if (!peers.client_ca.empty() && peers.certificate.empty()) {
    return InvalidArgument("peers.client_ca needs TLS, and peers.certificate is empty");
  }
  if (absl::Status status = CheckClientTls("peers.source_tls", peers.source_tls); !status.ok()) {
    return status;
  }
  if (!peers.advertised.empty()) {
    if (peers.address.empty()) {
      return InvalidArgument("peers.advertised is set, and peers.address is not");
    }
    absl::Status status = CheckHostPort("peers.advertised", peers.advertised);
    if (!status.ok()) return status;
  }
  if (peers.address.empty()) return absl::OkStatus();
  const absl::StatusOr<TcpAddress> address = ParseAddress(peers.address);
  if (!address.ok()) return address.status();
  if (config.knows_callers() && peers.tokens_file.empty() && peers.client_ca.empty()) {
    return InvalidArgument(absl::StrCat(
        "peers.address ", peers.address,
        " would let every process read the blocks of the configured tenants without credentials: "
        "set peers.tokens_file or peers.client_ca"));
  }
  if (IsLoopback(*address) || config.server.insecure) return absl::OkStatus();
  if (peers.tokens_file.empty() && peers.client_ca.empty()) {
    return InvalidArgument(absl::StrCat(
        "peers.address ", peers.address,
        " would let every machine read cached blocks: set peers.tokens_file or peers.client_ca, "
        "listen on loopback, or say server.insecure: true"));
  }
  if (peers.certificate.empty()) {
    return InvalidArgument(absl::StrCat(
        "peers.address ", peers.address,
        " would send blocks and tokens to other machines without TLS: set peers.certificate and "
        "key, listen on loopback, or say server.insecure: true"));
  }
  return absl::OkStatus();
}

}  // namespace pagoda::server
