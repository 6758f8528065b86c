// Opens the caches of a daemon, and ends them.
#ifndef PAGODA_SERVER_CACHE_CACHE_OPENER_H_
#define PAGODA_SERVER_CACHE_CACHE_OPENER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "manager/tenants.h"
#include "server/cache/brought_caches.h"
#include "server/cache/cache_directory.h"
#include "server/cache/memory_budget.h"
#include "server/cache/served_cache.h"
#include "server/config/config.h"
#include "server/supervisor.h"
#include "wire/caches.h"

namespace pagoda::server {

// OUT_OF_MEMORY: the configuration gives no memory for clients' caches.
absl::Status NoMemoryForCaches();

// The cache of the configuration and those that clients bring go the same way: a plan, the memory,
// a place in the directory. Opening takes memory and time, so clients' caches are opened and ended
// by one thread, one at a time.
//
// Invariants:
// 1. A cache that is in the directory is whole, and has its share of the budget.
// 2. A cache ends in three steps: nobody finds it any more; its sessions, streams and waits are
//    ended; then, when no call has it any more, its memory goes and its share comes back.
// 3. A refused Open leaves nothing behind.
// Thread-safe, but for Start, Keep and Stop.
class CacheOpener {
 public:
  struct Options {
    Config config;
    const TenantTable* tenants = nullptr;
    Supervisor* supervisor = nullptr;
    CacheDirectory* directory = nullptr;
    absl::Time start_time;
    // Ends what waits for the cache's copies, when it is dropped.
    std::function<void(const CacheParts&, const absl::Status&)> end_waits;
  };
  // Calls that wait for the thread; one more is refused with TOO_MANY_CALLS.
  static constexpr size_t kMaxWaiting = 64;

  // What `options` points to outlives this.
  explicit CacheOpener(Options options);
  // Calls Stop.
  ~CacheOpener();

  // Opens the configuration's cache, where it has one, with its engine; and those that clients had
  // opened in an earlier run, as far as they were kept. One of these that cannot be opened is told
  // to the log. Errors: those of ServedCache::Create and LoadEngine, of the configuration's cache.
  absl::Status Start();
  // The configuration's cache; null where it has none.
  ServedCache* own() const { return own_.get(); }
  // See ServedCache::Keep. From here on clients' caches are remembered for the next daemon.
  void Keep();

  struct Opened {
    CachePtr cache;
    bool created = false;
  };
  using OpenDone = std::function<void(const absl::StatusOr<Opened>&)>;
  // Opens the cache, or finds the one that is there; calls `done` once, on another thread or this
  // one. Errors: CACHE_MISMATCH, TOO_MANY_CACHES, OUT_OF_MEMORY, INVALID_ARGUMENT, DRAINING,
  // TOO_MANY_CALLS.
  void OpenLater(OpenCacheCall call, TenantId tenant, OpenDone done) ABSL_LOCKS_EXCLUDED(mutex_);

  using DropDone = std::function<void(const absl::StatusOr<uint64_t>&)>;
  // Ends a client's cache; `done` is told how many sessions ended with it. Its memory is free when
  // no call has it any more. Errors: UNKNOWN_CACHE; CACHE_IN_USE (it has sessions, and `force` is
  // false); INVALID_ARGUMENT (it is the configuration's); DRAINING, TOO_MANY_CALLS.
  void DropLater(std::string name, bool force, DropDone done) ABSL_LOCKS_EXCLUDED(mutex_);

  // For how long a client's cache has had no session, and when it ends if none comes. None: it has
  // sessions, or does not end by itself.
  struct Unused {
    absl::Duration since;
    absl::Duration ends_in;
  };
  std::optional<Unused> UnusedFor(uint32_t number) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the daemon's own engine runs over the cache.
  bool HasEngine(uint32_t number) const;
  const MemoryBudget& budget() const { return budget_; }

  // What the passing of time brings to each cache: see ServedCache::Maintain.
  void Maintain();
  // Ends the thread, and each cache's copies: see ServedCache::Stop. No call runs any more. A
  // second call does nothing.
  void Stop(absl::Time disk_end);

 private:
  using Job = std::function<void(const absl::Status&)>;  // An error: it is not to be done.

  // One of a client.
  struct Brought {
    BroughtCache as_opened;
    std::shared_ptr<ServedCache> cache;
    TenantId tenant = kDefaultTenant;
    MemoryBytes share;  // Of the budget.
    std::optional<absl::Time> unused_since;
    absl::Time retired;  // When it was dropped.
  };

  // The thread's loop: jobs, and a look at the caches now and then.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Submit(Job job) ABSL_LOCKS_EXCLUDED(mutex_);

  // --- On the thread, or before it runs ---

  absl::StatusOr<Opened> Open(OpenCacheCall call, TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_);
  // The cache that is there under the name; none where there is none. Errors: CACHE_MISMATCH.
  absl::StatusOr<CachePtr> FindSame(const OpenCacheCall& call, TenantId tenant)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What is taken of the budget for the call's tiers, whose sizes become bytes.
  absl::StatusOr<MemoryBytes> TakeShare(OpenCacheCall* call, TenantId tenant);
  // Makes the cache and gives it its place. `share` is the budget's again where that fails.
  absl::StatusOr<CachePtr> Make(BroughtCache brought, TenantId tenant, MemoryBytes share)
      ABSL_LOCKS_EXCLUDED(mutex_);
  ServedCache::Plan PlanOf(const BroughtCache& brought, TenantId tenant) const;
  // What the last run left; nothing where the file is no good, which is told to the log.
  BroughtCaches ReadRemembered() const;
  void OpenRemembered(const BroughtCaches& remembered);
  absl::Status Reopen(const BroughtCache& brought) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<uint64_t> Drop(const std::string& name, bool force) ABSL_LOCKS_EXCLUDED(mutex_);
  // Steps 1 and 2 of invariant 2.
  uint64_t Retire(uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops what has been unused for too long, and does step 3 where it can be done.
  void Sweep(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Step 3. REQUIRES: nobody else has the cache.
  void Bury(Brought retired);
  void Remember() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  MemoryBudget budget_;
  const std::optional<BroughtCachesFile> file_;  // Where clients' caches outlive the daemon.
  std::atomic<bool> keeps_ = false;              // From Keep on.
  uint32_t next_number_ = 1;
  std::shared_ptr<ServedCache> own_;
  std::vector<Brought> retired_;  // Between the steps 2 and 3.

  mutable absl::Mutex mutex_;
  // By number. The thread alone adds and removes.
  std::map<uint32_t, Brought> brought_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_CACHE_OPENER_H_
