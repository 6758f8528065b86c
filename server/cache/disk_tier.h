// The tier of a cache that lies on a disk: opened and looked through at the start, served after
// that, written out at the end.
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
#include "absl/time/time.h"
#include "events/block_hash.h"
#include "manager/disk/disk_carrier.h"
#include "manager/disk/disk_files.h"
#include "manager/disk/disk_recovery.h"
#include "manager/disk/disk_stats.h"
#include "manager/recovered_block.h"
#include "manager/shared_manager.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/types.h"
#include "server/config/config.h"
#include "server/supervisor.h"

namespace pagoda::server {

// "readwrite", "readonly" or "off": what metrics and the status page call it.
std::string_view SlabModeName(SlabMode mode);

// What operators are told of a tier on disk.
struct DiskNumbers {
  std::string tier;  // Its name.
  std::string path;
  uint64_t write_bytes_per_second = 0;  // 0: no limit.
  DiskStats stats;
};

// Open, TakeFound, Start, then anything, and Drain and Stop last. Thread-safe between Start and
// Drain.
class DiskTier {
 public:
  struct Options {
    Config::Cache::TierConfig config;  // With its name.
    Tier tier = Tier::kSecondary;      // Its place in the cache's list.
    std::vector<uint32_t> num_slots;   // By window.
    // Whether the core takes back blocks of a namespace.
    std::function<bool(const NamespaceKey&)> accepts;
  };

  // Makes the folder where it is missing, opens or makes the files and finds the blocks in them.
  // Tells the log how the files are read and written and what was found, and the supervisor how far
  // it is. Errors name the tier: PermissionDenied or those of the system (the folder), those of
  // DiskFiles::Open.
  static absl::StatusOr<std::unique_ptr<DiskTier>> Open(const CacheLayout& layout, Options options,
                                                        Supervisor* supervisor);
  // Calls Stop.
  ~DiskTier();

  // For BlockManager::RestoreDisk. Once.
  std::vector<RecoveredWindow> TakeFound() { return std::move(recovery_.windows); }
  // Tells the log how many of the found blocks are cached again, or why none is.
  void TellRestored(const absl::StatusOr<uint64_t>& restored) const;

  // Carries out what the manager orders from now on. Both outlive this.
  void Start(PoolSet* pools, SharedManager* manager);
  // Waits until `end` at most for what is ordered and makes it durable. Then it calls Stop, where
  // that was not enough, and warns of what is cut. The copies that orders wait for must go on
  // meanwhile. Without Start it does nothing.
  void Finish(absl::Time end);
  // From now on the manager has no disk, and the files are left alone. What waits is cancelled.
  void Stop();

  // Tells the log once of each file that turned read-only or off. Cheap to call often: it looks
  // every kLookInterval. REQUIRES: one caller at a time.
  void Watch();
  static constexpr absl::Duration kLookInterval = absl::Milliseconds(500);

  // REQUIRES: Start.
  DiskNumbers numbers() const;

 private:
  DiskTier(Options options, const CacheLayout& layout, std::unique_ptr<DiskFiles> files)
      : options_(std::move(options)), layout_(layout), files_(std::move(files)) {}

  void Recover(Supervisor* supervisor);
  void TellFiles() const;
  // On a thread of the carrier's.
  void OnDone(Lane lane, Ticket ticket, const absl::Status& status);
  // At most one line a second; what is left out is counted.
  void TellFailure(Lane lane, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  std::string Name() const;  // "tier 'nvme'".
  std::string WindowAt(size_t window_index) const;

  const Options options_;
  const CacheLayout layout_;
  std::unique_ptr<DiskFiles> files_;  // Until Start: then they are the carrier's.
  DiskRecovery recovery_;
  SharedManager* manager_ = nullptr;  // From Start on.
  bool stopped_ = false;

  absl::Time next_look_ = absl::InfinitePast();  // Of Watch, as the next one.
  std::vector<SlabMode> modes_;                  // By window: as the log was told.

  absl::Mutex mutex_;
  absl::Time next_line_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  bool told_too_large_ ABSL_GUARDED_BY(mutex_) = false;

  std::unique_ptr<DiskCarrier> carrier_;  // Ends first: its threads use the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_DISK_TIER_H_
