// Opens, drops and ends the caches of a daemon.
#ifndef PAGODA_SERVER_CACHE_CACHE_OPENER_H_
#define PAGODA_SERVER_CACHE_CACHE_OPENER_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "manager/accounts/tenants.h"
#include "server/cache/brought_caches.h"
#include "server/cache/job_turns.h"
#include "server/cache/memory_budget.h"
#include "server/cache/served_cache.h"
#include "server/config/config.h"
#include "server/directory/cache_directory.h"
#include "server/supervision/supervisor.h"
#include "wire/caches.h"

namespace pagoda::server {

// OUT_OF_MEMORY: the configuration gives no memory for clients' caches.
absl::Status NoMemoryForCaches();

// Every cache, the configuration's as well as a client's, is opened in the same steps: make a plan,
// take the memory, add the cache to the directory. Opening takes memory and time, so one thread
// opens and drops clients' caches, one at a time.
//
// Invariants:
// 1. A cache in the directory is complete and has its share of the budget.
// 2. A cache ends in three steps. First the directory drops it, so that no call finds it. Then its
//    sessions, streams and waits end. When no call holds it, its memory is freed and its share
//    returns to the budget.
// 3. A refused Open leaves nothing behind.
// Thread-safe, except for Start, Keep and Stop.
class CacheOpener {
 public:
  struct Options {
    Config config;
    const TenantTable* tenants = nullptr;
    Supervisor* supervisor = nullptr;
    CacheDirectory* directory = nullptr;
    Sources* sources = nullptr;   // See ServedCache::Plan.
    PeerServer* peers = nullptr;  // The same.
    absl::Time start_time;
    // Called when a cache is dropped: ends the calls that wait for the cache's copies.
    std::function<void(const CacheParts&, const absl::Status&)> end_waits;
  };
  // The most calls that wait for the thread, shared out among the tenants and the operators. A
  // further one is refused with TOO_MANY_CALLS. The callers take turns.
  static constexpr size_t kMaxWaiting = 64;
  // A cache that never had a session lingers for this time, if memory.linger is longer.
  static constexpr absl::Duration kUnusedLinger = absl::Seconds(30);

  // The pointers in `options` outlive this.
  explicit CacheOpener(Options options);
  // Calls Stop.
  ~CacheOpener();

  // Opens the configuration's cache, if it has one. Then reopens the caches that clients opened in
  // an earlier run, as far as they were kept; if one fails, the log says why. Errors: those of
  // ServedCache::Create for the configuration's cache, and of Thread::Start.
  absl::Status Start();
  // The configuration's cache; null if it has none.
  ServedCache* own() const { return own_.get(); }
  // See ServedCache::Keep. From now on the daemon lists clients' caches for the next daemon.
  void Keep();

  struct Opened {
    CachePtr cache;
    bool created = false;
  };
  using OpenDone = std::function<void(const absl::StatusOr<Opened>&)>;
  // Opens the cache, or finds the same cache if it is open already. Calls `done` once, on another
  // thread or on this one. Errors: CACHE_MISMATCH, TOO_MANY_CACHES, OUT_OF_MEMORY,
  // THREADS_EXHAUSTED, INVALID_ARGUMENT, DRAINING, TOO_MANY_CALLS.
  void OpenLater(OpenCacheCall call, TenantId tenant, OpenDone done) ABSL_LOCKS_EXCLUDED(mutex_);

  using DropDone = std::function<void(const absl::StatusOr<uint64_t>&)>;
  // Drops a client's cache. `done` gets the number of sessions that ended with it. The memory is
  // freed when no call holds the cache. Errors: UNKNOWN_CACHE; CACHE_IN_USE (it has sessions or
  // quarantined sessions, and `force` is false); INVALID_ARGUMENT (it is the configuration's
  // cache); DRAINING, TOO_MANY_CALLS.
  void DropLater(std::string name, bool force, DropDone done) ABSL_LOCKS_EXCLUDED(mutex_);

  // A session was opened in the cache.
  void NoteSession(uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (const auto found = brought_.find(number); found != brought_.end()) {
      found->second.had_session = true;
      found->second.unused_since = std::nullopt;
    }
  }

  // How long a client's cache has had no session, and when it ends if no session is opened. None:
  // it has sessions, or it is not a client's cache.
  struct Unused {
    absl::Duration since;
    absl::Duration ends_in;
  };
  std::optional<Unused> UnusedFor(uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  const MemoryBudget& budget() const { return budget_; }

  // Calls ServedCache::Maintain of each cache.
  void Maintain();
  // Ends the thread, then the copies of each cache: see ServedCache::Stop. REQUIRES: no other call
  // runs. A second call does nothing.
  void Stop(absl::Time disk_end);

 private:
  using Job = std::function<void(const absl::Status&)>;  // An error: the job must not run.

  // A cache that a client opened.
  struct Brought {
    BroughtCache as_opened;
    std::shared_ptr<ServedCache> cache;
    TenantId tenant = kDefaultTenant;
    MemoryBytes share;  // Its share of the budget.
    bool had_session = false;
    std::optional<absl::Time> unused_since;
    uint64_t ended_sessions = 0;  // At the last UpdateUse.
    absl::Time retired;           // When it was dropped.
  };

  // The thread's loop: runs the jobs, and Sweep now and then.
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // `party`: a tenant, or operators(), for which also the opener's own jobs count.
  void Submit(size_t party, Job job) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t operators() const { return options_.tenants->size(); }
  absl::Duration LingerOf(const Brought& brought) const {
    const absl::Duration linger = options_.config.memory.linger;
    return brought.had_session ? linger : std::min(linger, kUnusedLinger);
  }
  // Errors: TOO_MANY_CACHES.
  absl::Status CheckShare(TenantId tenant) const ABSL_LOCKS_EXCLUDED(mutex_);

  // --- On the thread, or before it runs ---

  absl::StatusOr<Opened> Open(OpenCacheCall call, TenantId tenant) ABSL_LOCKS_EXCLUDED(mutex_);
  // The open cache with the name; null if there is none. Errors: CACHE_MISMATCH.
  absl::StatusOr<CachePtr> FindSame(const OpenCacheCall& call, TenantId tenant)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes the memory of the call's tiers from the budget. Turns shares in `call` into bytes.
  absl::StatusOr<MemoryBytes> TakeShare(OpenCacheCall* call, TenantId tenant);
  // Makes the cache and adds it to the directory. Returns `share` to the budget if that fails.
  absl::StatusOr<CachePtr> Make(BroughtCache brought, TenantId tenant, MemoryBytes share)
      ABSL_LOCKS_EXCLUDED(mutex_);
  ServedCache::Plan PlanOf(const BroughtCache& brought, TenantId tenant) const;
  // The caches that the last run listed. If the file is invalid, none, and the log says why.
  BroughtCaches ReadRemembered() const;
  void OpenRemembered(const BroughtCaches& remembered);
  absl::Status Reopen(const BroughtCache& brought) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<uint64_t> Drop(const std::string& name, bool force) ABSL_LOCKS_EXCLUDED(mutex_);
  // Steps 1 and 2 of invariant 2.
  uint64_t Retire(uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets `unused_since` of the cache, if a client opened it. A session that began and ended since
  // the last call counts too.
  void UpdateUse(uint32_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops the caches that have been unused for too long, and does step 3 of invariant 2 for each
  // dropped cache that no call holds.
  void Sweep(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Step 3. REQUIRES: no call holds the cache.
  void Bury(Brought retired);
  void Remember() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  MemoryBudget budget_;
  const std::optional<BroughtCachesFile> file_;  // None: clients' caches end with the daemon.
  std::atomic<bool> keeps_ = false;              // From Keep on.
  uint32_t next_number_ = 1;
  std::shared_ptr<ServedCache> own_;  // Shared with the CachePtrs of the directory and of calls.
  std::vector<Brought> retired_;      // Between steps 2 and 3.

  mutable absl::Mutex mutex_;
  // By number. Only the thread, and Start before it, adds and removes.
  std::map<uint32_t, Brought> brought_ ABSL_GUARDED_BY(mutex_);
  JobTurns<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_CACHE_OPENER_H_
