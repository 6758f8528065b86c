// The counters of the last minutes, so that the status page shows a history when it is opened.
#ifndef PAGODA_SERVER_CACHE_STATUS_HISTORY_H_
#define PAGODA_SERVER_CACHE_STATUS_HISTORY_H_

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "manager/shared_manager.h"
#include "pools/transfers.h"
#include "server/supervision/periodic_task.h"

namespace pagoda::server {

// A sample of the counters, summed over all windows unless a comment says otherwise.
struct StatusSample {
  absl::Time time;
  // These three are the largest window's: each window looks up the same tokens.
  uint64_t lookup_tokens = 0;
  uint64_t hit_tokens = 0;
  uint64_t lower_hit_tokens = 0;
  uint64_t allocated_blocks = 0;
  uint64_t evicted_blocks = 0;  // Including blocks displaced from lower tiers.
  uint64_t offloaded_blocks = 0;
  uint64_t onboarded_blocks = 0;
  uint64_t copied_bytes = 0;
  uint64_t events = 0;                        // The last revision.
  std::array<uint64_t, kMaxTiers> used = {};  // Blocks that are not free, by tier.
};

StatusSample SampleOf(const ManagerStats& stats, const TransferStats& transfers, Revision last,
                      absl::Time now);

// Takes a sample every kInterval and keeps the last kSamples: ten minutes, 30 kB. Thread-safe.
class StatusHistory {
 public:
  static constexpr absl::Duration kInterval = absl::Seconds(2);
  static constexpr size_t kSamples = 300;

  // Both outlive this.
  StatusHistory(const SharedManager* manager, const Transfers* transfers);

  // Whether its thread started: see PeriodicTask.
  const absl::Status& started() const { return timer_.started(); }

  // Oldest first.
  std::vector<StatusSample> Samples() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);

  const SharedManager* const manager_;
  const Transfers* const transfers_;
  mutable absl::Mutex mutex_;
  std::deque<StatusSample> samples_ ABSL_GUARDED_BY(mutex_);
  PeriodicTask timer_;  // Last: its thread uses the other members.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_STATUS_HISTORY_H_
