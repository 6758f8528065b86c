// What a cache exchanges with other machines.
#ifndef PAGODA_SERVER_STORE_CACHE_EXCHANGE_H_
#define PAGODA_SERVER_STORE_CACHE_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "manager/api/operation.h"
#include "manager/exchange/block_exchange.h"
#include "manager/shared_manager.h"
#include "pools/pool.h"
#include "server/config/config.h"
#include "server/store/publisher.h"
#include "server/store/sources.h"

namespace pagoda::server {

// Brings prefixes into one cache, from its disk and from other machines, and writes its blocks into
// the daemon's store. Thread-safe.
class CacheExchange {
 public:
  struct Options {
    // These outlive this object.
    SharedManager* manager = nullptr;
    PoolSet* pools = nullptr;
    Sources* sources = nullptr;  // Null: there are no other machines.
    Config::Fetch fetch = {};
    Config::Store::Publish publish = {};
  };
  // If the cache cannot be exchanged, only its disk is fetched from: see unavailable().
  explicit CacheExchange(Options options);
  // Calls Stop.
  ~CacheExchange();

  // Why blocks are not exchanged with other machines; OK if they are. The errors are those of
  // BlockExchange::Create; FailedPrecondition if the configuration names no other machine.
  const absl::Status& unavailable() const { return unavailable_; }
  // Whether the exchange has a session of its own in the cache.
  bool has_session() const { return exchange_ != nullptr; }
  bool has_store() const { return exchange_ != nullptr && options_.sources->store() != nullptr; }

  struct Fetched {
    FetchOutcome outcome = FetchOutcome::kNoSource;
    uint32_t matched_tokens = 0;  // See MatchedPrefix. Counted when the fetch has ended.
    uint32_t fetched_tokens = 0;  // From the other machine.
  };
  using FetchDone = std::function<void(const absl::StatusOr<Fetched>&)>;
  // Fetches what lies on disk alone, then what the source has behind it. The session names the
  // prompt, and its tenant is charged. `most`: a limit in addition to that of the configuration.
  // `source`: null is the daemon's store. `done` runs on a thread of the cache, or within the call;
  // it must not block. Errors: those of PrefetchPrefix, ConfinedPrompt, CheckReaders and Execute;
  // TOO_MANY_CALLS (the tenant has a quarter of fetch.max_waiting already; the default tenant has
  // no such limit).
  void Fetch(SessionRef session, StoredPrompt prompt, absl::Duration most,
             std::shared_ptr<FetchSource> source, FetchDone done);

  // The same without the disk, for a caller that may name each namespace and tenant. `done` gets
  // the tokens that came.
  void FetchFrom(std::shared_ptr<FetchSource> source, StoredPrompt prompt,
                 std::function<void(uint32_t)> done);

  // Whether the configuration lets blocks of this namespace into the store.
  bool MayPublish(const NamespaceKey& name_space) const;
  // Writes the cached blocks of a confined prompt into the store, by no policy. As
  // BlockExchange::Publish; nothing is written if there is no store.
  void Publish(StoredPrompt prompt, BlockExchange::PublishDone done);

  // Call it every few milliseconds: begins the publishes that are due. Does not block.
  void Tick();
  // Ends everything. Waits until no slot is used, as BlockExchange::Stop does. Later calls end at
  // once.
  void Stop();

  ExchangeStats stats() const;
  PublisherStats publisher_stats() const;

 private:
  struct FetchCall;

  // Counts a fetch of the tenant. False: it has too many.
  bool Enter(const std::string& tenant) ABSL_LOCKS_EXCLUDED(mutex_);
  void FromDisk(const std::shared_ptr<FetchCall>& call);
  void FromSource(const std::shared_ptr<FetchCall>& call);
  void End(FetchCall& call, FetchOutcome outcome, uint32_t fetched_tokens);

  const Options options_;
  absl::Status unavailable_;
  std::unique_ptr<BlockExchange> exchange_;    // Null if `unavailable_` is an error.
  std::unique_ptr<StorePublisher> publisher_;  // Null without a store, or without a policy.

  absl::Mutex mutex_;                                                            // A leaf.
  absl::flat_hash_map<std::string, uint32_t> fetching_ ABSL_GUARDED_BY(mutex_);  // By tenant.
};

// The session's namespace and the tenant that is charged, as the cache's operations have them: the
// exchange's own session is trusted, so the caller's rights are checked here. Errors: those of
// TenantTable::Confine and Charged, and of CheckSession.
absl::StatusOr<StoredPrompt> ConfinedPrompt(const SharedManager& manager, SessionRef session,
                                            StoredPrompt prompt);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_STORE_CACHE_EXCHANGE_H_
