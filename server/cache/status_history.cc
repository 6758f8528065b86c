#include "server/cache/status_history.h"

namespace pagoda::server {

StatusSample SampleOf(const ManagerStats& stats, const TransferStats& transfers, Revision last,
                      absl::Time now) {
  StatusSample sample{.time = now, .events = last.value()};
  const WindowCounters& largest = stats.windows.back().counters;
  sample.lookup_tokens = largest.prefix_lookup_tokens;
  sample.hit_tokens = largest.prefix_hit_tokens;
  sample.lower_hit_tokens = largest.lower_hit_tokens;
  for (const WindowStats& window : stats.windows) {
    sample.allocated_blocks += window.counters.allocated_blocks;
    sample.evicted_blocks += window.counters.evicted_blocks + window.counters.displaced_blocks;
    sample.offloaded_blocks += window.counters.offloaded_blocks;
    sample.onboarded_blocks += window.counters.onboarded_blocks;
    for (size_t t = 0; t < window.tiers.size(); ++t) {
      sample.used[t] += window.tiers[t].capacity - window.tiers[t].free;
    }
  }
  for (const auto& targets : transfers.directions) {
    for (const TransferStats::Direction& direction : targets) {
      sample.copied_bytes += direction.bytes;
    }
  }
  return sample;
}

StatusHistory::StatusHistory(const SharedManager* manager, const Transfers* transfers)
    : manager_(manager), transfers_(transfers), timer_(kInterval, [this] { Look(); }) {
  Look();
}

void StatusHistory::Look() {
  const StatusSample sample = SampleOf(manager_->Read(&BlockManager::Stats), transfers_->stats(),
                                       manager_->log().last(), SharedManager::Now());
  absl::MutexLock lock(&mutex_);
  samples_.push_back(sample);
  if (samples_.size() > kSamples) samples_.pop_front();
}

std::vector<StatusSample> StatusHistory::Samples() const {
  absl::MutexLock lock(&mutex_);
  return {samples_.begin(), samples_.end()};
}

}  // namespace pagoda::server
