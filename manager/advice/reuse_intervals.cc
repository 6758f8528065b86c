#include "manager/advice/reuse_intervals.h"

namespace pagoda {
namespace {

absl::Duration Since(int64_t start_ns, absl::Time now) {
  return absl::Nanoseconds(absl::ToUnixNanos(now) - start_ns);
}

}  // namespace

void ReuseIntervals::Stored(BlockId id, absl::Time now) {
  blocks_[id] = {absl::ToUnixNanos(now), absl::ToUnixNanos(now)};
}

void ReuseIntervals::Released(BlockId id, absl::Time now) {
  blocks_.at(id).released = absl::ToUnixNanos(now);
}

void ReuseIntervals::Matched(BlockId id, Tier tier, absl::Time now) {
  histograms_.reuse_gap[tier.value()].Observe(Since(blocks_.at(id).released, now));
}

void ReuseIntervals::Evicted(BlockId id, Tier tier, absl::Time now) {
  histograms_.idle_before_eviction[tier.value()].Observe(Since(blocks_.at(id).released, now));
  Left(id, tier, now);
}

void ReuseIntervals::Left(BlockId id, Tier tier, absl::Time now) {
  histograms_.lifetime[tier.value()].Observe(Since(blocks_.at(id).stored, now));
}

}  // namespace pagoda
