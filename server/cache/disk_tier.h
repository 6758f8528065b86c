// A cache's tier on disk. The daemon opens and scans its files at the start, serves them, and makes
// the last writes durable at the end.
#ifndef PAGODA_SERVER_CACHE_DISK_TIER_H_
#define PAGODA_SERVER_CACHE_DISK_TIER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "events/block_hash.h"
#include "manager/disk/disk_carrier.h"
#include "manager/disk/disk_files.h"
#include "manager/disk/disk_recovery.h"
#include "manager/disk/disk_stats.h"
#include "manager/shared_manager.h"
#include "manager/words/recovered_block.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/types.h"
#include "server/config/config.h"
#include "server/supervision/supervisor.h"

namespace pagoda::server {

// "readwrite", "readonly" or "off", as in metrics and on the status page.
std::string_view SlabModeName(SlabMode mode);

// The numbers of a tier on disk, for metrics and the status page.
struct DiskNumbers {
  std::string tier;  // Its name.
  std::string path;
  uint64_t write_bytes_per_second = 0;  // 0: no limit.
  DiskStats stats;
  std::vector<uint64_t> damaged_slots;  // By window: DiskRecoveryReport::damaged_slots.
};

// Call Open, TakeFound and Start first, in this order, and Finish and Stop last. Thread-safe
// between Start and Finish.
class DiskTier {
 public:
  struct Options {
    Config::Cache::TierConfig config;  // With its name.
    Tier tier;                         // Its position in the cache's list of tiers.
    std::vector<uint32_t> num_slots;   // By window.
    // Whether the core accepts recovered blocks of a namespace.
    std::function<bool(const NamespaceKey&)> accepts;
  };

  // Creates the folder if it is missing, opens or creates the files, and recovers the blocks in
  // them. Logs how the files are read and written and what was recovered. Reports progress to the
  // supervisor. Errors name the tier: PermissionDenied or those of the system (the folder), those
  // of DiskFiles::Open.
  static absl::StatusOr<std::unique_ptr<DiskTier>> Open(const CacheLayout& layout, Options options,
                                                        Supervisor* supervisor);
  // Calls Stop.
  ~DiskTier();

  // The recovered blocks, for WarmRestart::RestoreDisk. Call it once.
  std::vector<RecoveredWindow> TakeFound() { return std::move(recovery_.windows); }
  // Logs how many of the recovered blocks are cached again, or why none is.
  void LogRestored(const absl::StatusOr<uint64_t>& restored) const;

  // Executes the manager's orders from now on. Both arguments outlive this.
  // Errors: those of Thread::Start.
  absl::Status Start(PoolSet* pools, SharedManager* manager);
  // Waits until `end` at most for the pending orders and makes their writes durable. If the time is
  // not enough, logs how many orders are cut and calls Stop. Some orders wait for copies, which
  // must go on meanwhile. Does nothing without Start.
  void Finish(absl::Time end);
  // Takes the disk from the manager and no longer touches the files. Cancels waiting orders.
  void Stop();

  // Logs each file once that has turned read-only or off. Cheap to call often: it checks the files
  // every kLookInterval. REQUIRES: one caller at a time.
  void Watch();
  static constexpr absl::Duration kLookInterval = absl::Milliseconds(500);

  // REQUIRES: Start.
  DiskNumbers numbers() const;

 private:
  DiskTier(Options options, const CacheLayout& layout, std::unique_ptr<DiskFiles> files)
      : options_(std::move(options)), layout_(layout), files_(std::move(files)) {}

  void Recover(Supervisor* supervisor);
  void LogFiles() const;
  // Runs on a thread of the carrier.
  void OnDone(Lane lane, Ticket ticket, const absl::Status& status);
  // Logs at most one line a second and counts the failures in between.
  void LogFailure(Lane lane, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string Name() const;  // "tier 'nvme'".
  std::string WindowAt(size_t window_index) const;

  const Options options_;
  const CacheLayout layout_;
  std::unique_ptr<DiskFiles> files_;  // Until Start, which gives them to the carrier.
  DiskRecovery recovery_;
  SharedManager* manager_ = nullptr;  // From Start on.
  bool stopped_ = false;

  absl::Time next_look_ = absl::InfinitePast();  // Used by Watch only, as is modes_.
  std::vector<SlabMode> modes_;                  // By window: the mode that was logged last.

  absl::Mutex mutex_;
  absl::Time next_line_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool told_too_large_ ABSL_GUARDED_BY(mutex_) = false;

  std::unique_ptr<DiskCarrier> carrier_;  // Destroyed early: its threads use the other members.

  // Waits for the pending orders when Finish begins. It exists from Start on, because the end of
  // the daemon must not need a new thread.
  bool is_finishing_ = false;  // Written before finish_ is notified.
  absl::Notification finish_, drained_;
  absl::Status drain_status_;  // Written before drained_ is notified.
  Thread drainer_;             // Destroyed first: it uses the other members.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_DISK_TIER_H_
