// How long blocks stay cached, how long nobody holds them before they have to go, and how soon
// somebody comes back to them.
#ifndef PAGODA_MANAGER_REUSE_INTERVALS_H_
#define PAGODA_MANAGER_REUSE_INTERVALS_H_

#include <array>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "manager/ids.h"
#include "pools/duration_histogram.h"
#include "pools/types.h"

namespace pagoda {

// Bounds of the histograms, in seconds: a millisecond to a day.
inline constexpr double kReuseIntervalBounds[] = {0.001, 0.003, 0.01, 0.03,   0.1,    0.3,
                                                  1,     3,     10,   30,     60,     180,
                                                  600,   1800,  3600, 10'800, 36'000, 86'400};

// Follows a sample of the blocks: one id in `one_in`, chosen by a hash, so that neither a prompt's
// length nor the order in which ids are handed out decides which. The owner asks Samples() when a
// block becomes cached, remembers the answer with the block, and reports what happens to the blocks
// in the sample alone. Cost: a multiplication for each block that is cached; a hash look-up for
// what happens to those in the sample, and some 40 bytes for each such id. Thread-compatible.
class ReuseIntervals {
 public:
  // By the tier where the block was at the end of the time that is measured.
  struct Histograms {
    using ByTier = std::array<DurationHistogram, kMaxTiers>;
    static ByTier Empty() {
      const DurationHistogram empty(kReuseIntervalBounds);
      return {empty, empty, empty, empty};
    }
    // From the block's Stored event to the event that says that it left.
    ByTier lifetime = Empty();
    // From when its last holder let it go until it was evicted or displaced.
    ByTier idle_before_eviction = Empty();
    // From when its last holder let it go until a sequence matched it, where nobody held it then.
    // Where these are about as long as idle_before_eviction, more blocks would be more hits.
    ByTier reuse_gap = Empty();
  };

  // 1: every block; 0: none.
  explicit ReuseIntervals(uint32_t one_in)
      : picked_below_(one_in == 0 ? 0 : (uint64_t{1} << 32) / one_in) {}

  // Multiplicative hashing by the golden ratio (Knuth, TAOCP 3, 6.4): ids in a row are spread
  // evenly.
  bool Samples(BlockId id) const { return id.value() * 0x9E37'79B1u < picked_below_; }

  // Of blocks in the sample; `now` does not go back.
  void Stored(BlockId id, absl::Time now);
  // Its last holder let it go.
  void Released(BlockId id, absl::Time now);
  // A sequence is to hold it, and nobody does.
  void Matched(BlockId id, Tier tier, absl::Time now);
  // It is not cached any more: it had to make room, and nobody held it; or for another reason.
  void Evicted(BlockId id, Tier tier, absl::Time now);
  void Left(BlockId id, Tier tier, absl::Time now);

  const Histograms& histograms() const { return histograms_; }

 private:
  // Nanoseconds since 1970.
  struct Life {
    int64_t stored;
    int64_t released;  // By its last holder, last; until then when it was stored.
  };

  const uint64_t picked_below_;
  // By id, of the last life too: nothing is taken out, so a pool in use takes no memory any more.
  absl::flat_hash_map<BlockId, Life> blocks_;
  Histograms histograms_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_REUSE_INTERVALS_H_
