#include "server/store/sources.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/shared_manager.h"
#include "pools/store/redis_store.h"
#include "server/callers/watched_file.h"
#include "server/log/log.h"

namespace pagoda::server {
namespace {

Exposure ExposureOf(const Config& config) {
  return config.server.insecure ? Exposure::kWarned : Exposure::kRefused;
}

// The text of a file with one secret; empty if there is no file.
absl::StatusOr<std::string> ReadSecret(const std::string& key, const std::string& path,
                                       const Config& config) {
  if (path.empty()) return std::string();
  const absl::StatusOr<std::string> text = ReadSecretFile(path, ExposureOf(config));
  if (!text.ok()) return text.status();
  std::string secret(absl::StripAsciiWhitespace(*text));
  if (secret.empty()) return InvalidArgument(absl::StrCat(key, ": ", path, " is empty"));
  return secret;
}

RedisTls TlsOf(const Config::Store::Tls& tls) {
  return {.is_on = tls.enabled,
          .ca_file = tls.ca,
          .certificate_file = tls.certificate,
          .key_file = tls.key};
}

absl::StatusOr<RedisOptions> StoreOptions(const Config& config) {
  const Config::Store& store = config.store;
  RedisOptions options = {.key_prefix = store.key_prefix,
                          .username = store.username,
                          .password_file = store.password_file,
                          .tls = TlsOf(store.tls),
                          .read_from_replicas = store.read_from_replicas,
                          .allowed_networks = store.allowed_networks,
                          .connections_per_node = store.connections,
                          .pipeline = store.pipeline};
  for (const std::string& server : store.servers) {
    absl::StatusOr<RedisAddress> address = ParseRedisAddress(server);
    if (!address.ok()) return address.status();
    options.seeds.push_back(*std::move(address));
  }
  absl::StatusOr<std::string> secret = ReadStoreSecret(config);
  if (!secret.ok()) return secret.status();
  options.secret = *std::move(secret);
  // The store reads the password at each connect. A missing file is reported at the start.
  const absl::StatusOr<std::string> password =
      ReadSecret("store.password_file", store.password_file, config);
  if (!password.ok()) return password.status();
  return options;
}

}  // namespace

absl::StatusOr<std::string> ReadStoreSecret(const Config& config) {
  return ReadSecret("store.secret_file", config.store.secret_file, config);
}

absl::StatusOr<std::unique_ptr<Sources>> Sources::Create(const Config& config) {
  auto sources = absl::WrapUnique(new Sources);
  if (config.store.enabled()) {
    absl::StatusOr<RedisOptions> options = StoreOptions(config);
    if (!options.ok()) return options.status();
    absl::StatusOr<std::unique_ptr<RedisStore>> store = RedisStore::Create(*std::move(options));
    if (!store.ok()) return store.status();
    sources->store_ = *std::move(store);
  }
  const Config::Peers& peers = config.peers;
  sources->advertised_ = peers.AdvertisedAddress();
  absl::StatusOr<SourcePatterns> allowed = SourcePatterns::Parse(peers.sources);
  if (!allowed.ok()) return allowed.status();
  sources->allowed_ = *std::move(allowed);
  // The peer's token is read at each connect, so that it can change.
  const absl::StatusOr<std::string> token =
      ReadSecret("peers.source_token_file", peers.source_token_file, config);
  if (!token.ok()) return token.status();
  absl::StatusOr<std::string> secret = ReadStoreSecret(config);
  if (!secret.ok()) return secret.status();
  sources->peer_options_ = {.secret = *std::move(secret),
                            .password_file = peers.source_token_file,
                            .tls = TlsOf(peers.source_tls),
                            .is_plain = true,
                            .max_backoff = absl::Seconds(1)};
  return sources;
}

Sources::~Sources() { Stop(); }

absl::StatusOr<RedisAddress> AllowedSource(const SourcePatterns& allowed,
                                           const std::string& address) {
  absl::StatusOr<RedisAddress> parsed = ParseRedisAddress(address);
  if (!parsed.ok()) return InvalidArgument(absl::StrCat("'", address, "' is not HOST:PORT"));
  if (allowed.Allows(*parsed)) return parsed;
  return MakeError(Reason::kPermissionDenied,
                   absl::StrCat("the daemon does not fetch from ", ToString(*parsed),
                                ": peers.sources of its configuration does not allow it"));
}

absl::StatusOr<std::shared_ptr<FetchSource>> Sources::Peer(const std::string& address) {
  const absl::StatusOr<RedisAddress> parsed = AllowedSource(allowed_, address);
  if (!parsed.ok()) return parsed.status();
  const std::string name = ToString(*parsed);
  std::list<PeerEntry> unused;  // Destroyed after the lock.
  absl::MutexLock lock(&mutex_);
  unused = Sweep();
  const auto found = std::find_if(peers_.begin(), peers_.end(),
                                  [&](const PeerEntry& entry) { return entry.address == name; });
  if (found != peers_.end()) {
    peers_.splice(peers_.begin(), peers_, found);
    return peers_.front().source;
  }
  if (stopped_) return absl::CancelledError("the daemon shuts down");
  if (retired_.size() >= kMaxPeers) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "under way: fetches from ", Counted(peers_.size() + retired_.size(), "daemon")));
  }
  RedisOptions options = peer_options_;
  options.seeds = {*parsed};
  absl::StatusOr<std::unique_ptr<RedisStore>> created = RedisStore::Create(std::move(options));
  if (!created.ok()) return created.status();
  std::shared_ptr<Store> store = *std::move(created);
  auto source = std::make_shared<FetchSource>(store, !peer_options_.secret.empty());
  peers_.push_front({name, std::move(store), source});
  if (peers_.size() > kMaxPeers) retired_.splice(retired_.end(), peers_, std::prev(peers_.end()));
  return source;
}

std::list<Sources::PeerEntry> Sources::Sweep() {
  std::list<PeerEntry> unused;
  for (auto entry = retired_.begin(); entry != retired_.end();) {
    const auto next = std::next(entry);
    // Nothing takes a further reference to a retired source, so a count of 1 stays.
    if (entry->source.use_count() == 1) unused.splice(unused.end(), retired_, entry);
    entry = next;
  }
  return unused;
}

std::vector<Sources::PeerRow> Sources::Peers() const {
  absl::MutexLock lock(&mutex_);
  std::vector<PeerRow> rows;
  for (const PeerEntry& entry : peers_) {
    rows.push_back({entry.address, entry.store->stats(), entry.source->bytes_per_second()});
  }
  return rows;
}

void Sources::LogRefusals() {
  if (store_ == nullptr) return;
  const absl::Time now = SharedManager::Now();
  absl::MutexLock lock(&mutex_);
  if (now < next_log_) return;
  next_log_ = now + kLogInterval;
  const uint64_t refused = store_->stats().refused_servers;
  if (refused == refusals_logged_) return;
  // Without what the servers said: that is foreign text.
  Log(LogLevel::kWarning,
      absl::StrCat("store: refused ", Counted(refused - refusals_logged_, "connection"),
                   " to servers that the store named: "
                   "store.allowed_networks does not allow them, or they would get the password "
                   "without TLS"));
  refusals_logged_ = refused;
}

void Sources::Stop() {
  std::vector<std::shared_ptr<Store>> stores;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    for (const std::list<PeerEntry>* list : {&peers_, &retired_}) {
      for (const PeerEntry& entry : *list) stores.push_back(entry.store);
    }
  }
  if (store_ != nullptr) store_->Stop();
  for (const std::shared_ptr<Store>& store : stores) store->Stop();
}

absl::StatusOr<std::shared_ptr<FetchSource>> FindSource(Sources* sources,
                                                        const std::string& address) {
  if (address.empty()) return nullptr;
  if (sources != nullptr) return sources->Peer(address);
  return MakeError(Reason::kPermissionDenied,
                   "the daemon fetches from no other daemon: its configuration has no "
                   "peers.sources");
}

}  // namespace pagoda::server
