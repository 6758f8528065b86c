// The memory of a cache that outlives the daemon (cache.warm_restart): its sizes, the recovered
// blocks, and the stamps that say which block each slot holds.
#ifndef PAGODA_SERVER_CACHE_KEPT_MEMORY_H_
#define PAGODA_SERVER_CACHE_KEPT_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "events/block_hash.h"
#include "manager/restart/recovery.h"
#include "manager/restart/slot_stamper.h"
#include "manager/restart/stamp_set.h"
#include "manager/words/recovered_block.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/sizing.h"
#include "server/config/config.h"
#include "server/supervision/supervisor.h"

namespace pagoda::server {

// Removes the shared memory that dead daemons left under the names of the cache. Errors:
// INVALID_ARGUMENT (a running daemon uses it).
absl::Status RemoveLeftMemory(const CacheLayout& layout, const std::string& instance);

// If the last daemon left memory of this layout and of the same budgets: returns `cache` with the
// last daemon's sizes instead of shares. A share of the free memory would now be smaller, because
// the left memory is not free. Otherwise: removes the left memory and returns `cache` unchanged.
// Errors: those of RemoveLeftMemory.
absl::StatusOr<Config::Cache> WithSizesOfTheLastRun(Config::Cache cache, const CacheLayout& layout,
                                                    const std::string& instance);

// Thread-compatible.
class KeptMemory {
 public:
  struct Options {
    std::string instance;
    Config::Cache budgets;   // The budgets of the configuration.
    uint32_t max_holes = 0;  // The most that the core accepts.
    // Whether the core accepts blocks of a namespace.
    std::function<bool(const NamespaceKey&)> accepts;
  };

  // Adopts the stamps next to the pools and recovers the blocks. Until Keep is called, pools and
  // stamps that this daemon created end with it; found ones stay. Logs the result and reports
  // progress to the supervisor. Errors: those of StampSet::Create.
  static absl::StatusOr<std::unique_ptr<KeptMemory>> Open(PoolSet* pools, const Options& options,
                                                          Supervisor* supervisor);

  // The recovered blocks, for WarmRestart::Restore. Call it once.
  std::vector<RecoveredWindow> TakeFound() { return std::move(recovery_.windows); }
  const RecoveryReport& report() const { return recovery_.report; }
  // Whether a client of an earlier daemon could still map the pools at the start.
  bool may_have_old_writers() const { return may_have_old_writers_; }
  // The daemon serves now: from here on its end leaves the pools and stamps behind, including those
  // that it created.
  void Keep() {
    pools_->KeepNames();
    stamps_->KeepNames();
  }
  // The core refused the recovered blocks: clears the stamp of every slot.
  void Forget() { stamps_->InvalidateAll(); }
  // For SharedManager::SetSlotSink.
  SlotStamper& stamper() { return stamper_; }

 private:
  KeptMemory(PoolSet* pools, std::unique_ptr<StampSet> stamps, Recovery recovery,
             bool may_have_old_writers)
      : pools_(pools),
        stamps_(std::move(stamps)),
        recovery_(std::move(recovery)),
        may_have_old_writers_(may_have_old_writers),
        stamper_(pools, stamps_.get()) {}

  PoolSet* const pools_;
  const std::unique_ptr<StampSet> stamps_;
  Recovery recovery_;
  const bool may_have_old_writers_;
  SlotStamper stamper_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_KEPT_MEMORY_H_
