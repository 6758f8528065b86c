// Where prefixes of other machines are: the daemon's store, and other daemons.
#ifndef PAGODA_SERVER_STORE_SOURCES_H_
#define PAGODA_SERVER_STORE_SOURCES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "manager/exchange/fetch_source.h"
#include "pools/store/redis_options.h"
#include "pools/store/store.h"
#include "server/config/config.h"
#include "server/config/source_patterns.h"

namespace pagoda::server {

// The connections that all caches of a daemon share. Thread-safe.
//
// 1. Clients can make the daemon connect only to peers that `peers.sources` allow, and a peer
// cannot
//    redirect it elsewhere.
// 2. At most kMaxPeers peers are connected, and as many further ones whose fetches have not ended.
//    The one that was used least recently makes place for another one.
class Sources {
 public:
  static constexpr size_t kMaxPeers = 64;
  static constexpr absl::Duration kLogInterval = absl::Seconds(10);

  // Connects in the background: servers that are down are no error. Errors: INVALID_ARGUMENT (a
  // file cannot be read, or others can read it; certificates), ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Sources>> Create(const Config& config);
  // Calls Stop. REQUIRES: no fetch is under way.
  ~Sources();

  // Whether there is anything to fetch from.
  bool any() const { return store_ != nullptr || !allowed_.empty(); }
  // The daemon's store; null if there is none.
  Store* store() const { return store_.get(); }
  // The daemon that answers at this address, "HOST:PORT". Errors: PERMISSION_DENIED (peers.sources
  // does not allow it), INVALID_ARGUMENT (not an address), ResourceExhausted (too many peers).
  absl::StatusOr<std::shared_ptr<FetchSource>> Peer(const std::string& address)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The address at which other daemons reach this one; empty: none.
  const std::string& advertised() const { return advertised_; }

  struct PeerRow {
    std::string address;
    StoreStats stats;
    double bytes_per_second = 0;  // The measured speed: see FetchSource.
  };
  // The most recently used first.
  std::vector<PeerRow> Peers() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Says in the log, at most every kLogInterval, that servers which the store named were refused.
  void LogRefusals() ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends all operations of the store and of the peers. Later ones are cancelled.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct PeerEntry {
    std::string address;
    std::shared_ptr<Store> store;         // Also owned by the source.
    std::shared_ptr<FetchSource> source;  // Also owned by fetches.
  };

  Sources() = default;
  // Takes out the retired peers that no fetch uses any more. The caller destroys them without the
  // lock, because that joins their threads. A fetch that ends on a thread of its store must not
  // destroy that store.
  std::list<PeerEntry> Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::unique_ptr<Store> store_;
  std::string advertised_;
  SourcePatterns allowed_;
  RedisOptions peer_options_;  // Without the address.

  mutable absl::Mutex mutex_;                           // Taken before the locks of the stores.
  std::list<PeerEntry> peers_ ABSL_GUARDED_BY(mutex_);  // The most recently used first.
  std::list<PeerEntry> retired_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time next_log_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t refusals_logged_ ABSL_GUARDED_BY(mutex_) = 0;
};

// store.secret_file, which authenticates the values of the store and of peers. Empty: there is
// none.
absl::StatusOr<std::string> ReadStoreSecret(const Config& config);

// The address that a client names, if peers.sources match it. Errors: INVALID_ARGUMENT,
// PERMISSION_DENIED.
absl::StatusOr<RedisAddress> AllowedSource(const SourcePatterns& allowed,
                                           const std::string& address);
// The source that a client names; null if it names none. `sources` may be null: then no name is
// allowed. Errors: those of Sources::Peer.
absl::StatusOr<std::shared_ptr<FetchSource>> FindSource(Sources* sources,
                                                        const std::string& address);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_STORE_SOURCES_H_
