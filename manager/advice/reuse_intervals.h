// How long blocks stay cached, how long they lie idle before eviction, and how soon they are used
// again.
#ifndef PAGODA_MANAGER_ADVICE_REUSE_INTERVALS_H_
#define PAGODA_MANAGER_ADVICE_REUSE_INTERVALS_H_

#include <array>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "manager/words/ids.h"
#include "pools/duration_histogram.h"
#include "pools/types.h"

namespace pagoda {

// Bounds of the histograms, in seconds: a millisecond to a day.
inline constexpr double kReuseIntervalBounds[] = {0.001, 0.003, 0.01, 0.03,   0.1,    0.3,
                                                  1,     3,     10,   30,     60,     180,
                                                  600,   1800,  3600, 10'800, 36'000, 86'400};

// Follows a sample of the blocks: one id in `one_in`. A hash chooses them, so neither the length of
// prompts nor the order of the ids matters. When a block becomes cached, the owner asks Samples()
// and remembers the answer with the block. It reports events for the blocks in the sample only.
// Cost: a multiplication for each block that becomes cached; a hash look-up for each event of a
// sampled block, and some 40 bytes for each sampled id. Thread-compatible.
class ReuseIntervals {
 public:
  // By the tier in which the block was at the end of the interval.
  struct Histograms {
    using ByTier = std::array<DurationHistogram, kMaxTiers>;
    static ByTier Empty() {
      const DurationHistogram empty(kReuseIntervalBounds);
      return {empty, empty, empty, empty};
    }
    // From the block's Stored event to the event of its removal.
    ByTier lifetime = Empty();
    // From the release by its last holder to its eviction or displacement.
    ByTier idle_before_eviction = Empty();
    // From the release by its last holder to a sequence's match of the idle block. If these are
    // about as long as idle_before_eviction, a larger cache would give more hits.
    ByTier reuse_gap = Empty();
  };

  // 1: every block; 0: none.
  explicit ReuseIntervals(uint32_t one_in)
      : picked_below_(one_in == 0 ? 0 : (uint64_t{1} << 32) / one_in) {}

  // Multiplicative hashing by the golden ratio (Knuth, TAOCP 3, 6.4): ids in a row are spread
  // evenly.
  bool Samples(BlockId id) const { return id.value() * 0x9E37'79B1u < picked_below_; }

  // Only for blocks in the sample. `now` never decreases.
  void Stored(BlockId id, absl::Time now);
  // Its last holder released it.
  void Released(BlockId id, absl::Time now);
  // A sequence is about to hold it, and nothing holds it yet.
  void Matched(BlockId id, Tier tier, absl::Time now);
  // It is not cached any more. Evicted: nothing held it, and its slot was needed. Left: any other
  // reason.
  void Evicted(BlockId id, Tier tier, absl::Time now);
  void Left(BlockId id, Tier tier, absl::Time now);

  const Histograms& histograms() const { return histograms_; }

 private:
  // Nanoseconds since 1970.
  struct Life {
    int64_t stored;
    int64_t released;  // The last release by its last holder; until the first one, as stored.
  };

  const uint64_t picked_below_;
  // By id, also after the block left. No entry is removed, so a running cache needs no more memory.
  absl::flat_hash_map<BlockId, Life> blocks_;
  Histograms histograms_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ADVICE_REUSE_INTERVALS_H_
