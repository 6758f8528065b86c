// The memory of a cache that outlives the daemon (cache.warm_restart): how large it was, what is
// found in it, and who writes down what comes to lie there.
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
#include "manager/recovered_block.h"
#include "manager/recovery.h"
#include "manager/slot_stamper.h"
#include "manager/stamp_set.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/sizing.h"
#include "server/config/config.h"
#include "server/supervisor.h"

namespace pagoda::server {

// Removes the shared memory that dead daemons left under the names of the cache. Errors:
// INVALID_ARGUMENT (a living daemon has it).
absl::Status RemoveLeftMemory(const CacheLayout& layout, const std::string& instance);

// The configuration's cache with the sizes that the last daemon made of the same budgets, where it
// left memory of this layout: a share of what is free now would come out otherwise, because that
// memory is not. Else the cache as it is, and what was left is removed, so that it is free.
// Errors: those of RemoveLeftMemory.
absl::StatusOr<Config::Cache> WithSizesOfTheLastRun(Config::Cache cache, const CacheLayout& layout,
                                                    const std::string& instance);

// Thread-compatible.
class KeptMemory {
 public:
  struct Options {
    std::string instance;
    Config::Cache budgets;   // As they were configured.
    uint32_t max_holes = 0;  // That the core will take.
    // Of which the core will take blocks.
    std::function<bool(const NamespaceKey&)> accepts;
  };

  // Takes over the stamps beside the pools and looks for blocks in them. What was made and not
  // found, here and of the pools, goes with its owner until Keep is called. Tells
  // the log what was found and what not, and the supervisor how far it is. Errors: those of
  // StampSet::Create.
  static absl::StatusOr<std::unique_ptr<KeptMemory>> Open(PoolSet* pools, const Options& options,
                                                          Supervisor* supervisor);

  // For BlockManager::Restore. Once.
  std::vector<RecoveredWindow> TakeFound() { return std::move(recovery_.windows); }
  const RecoveryReport& report() const { return recovery_.report; }
  // Whether a client of an earlier daemon may still map the pools, as it was at the start.
  bool may_have_old_writers() const { return may_have_old_writers_; }
  // The daemon serves: its end leaves the pools and the stamps behind, also those that it made.
  void Keep() {
    pools_->KeepNames();
    stamps_->KeepNames();
  }
  // The core did not take what was found: no slot has a stamp any more.
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
