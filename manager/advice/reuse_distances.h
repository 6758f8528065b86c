// How many other blocks are used between two uses of a block: from this follows the hit rate that a
// cache of any size would have.
#ifndef PAGODA_MANAGER_ADVICE_REUSE_DISTANCES_H_
#define PAGODA_MANAGER_ADVICE_REUSE_DISTANCES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "manager/advice/hit_rate_curve.h"
#include "manager/advice/policy_simulation.h"
#include "manager/words/block_facts.h"

namespace pagoda {

// Follows a sample of the blocks of one window, by a hash of their content (SHARDS: Waldspurger et
// al., FAST 2015), in the order in which LRU would evict them: by the end of their last use. A
// block that is evicted stays in that order, so a request that misses it tells how much larger the
// cache would have had to be.
//
// Blocks leave leaves first, and a request releases its blocks tail first. So a block's ancestors
// are always more recent than the block, and an LRU cache of c blocks has a block exactly if fewer
// than c other blocks are more recent. The sample needs no paths.
//
// A block that something holds (a sequence, a pin, a deferred release) is more recent than any
// block that nothing holds. It counts once in the distance of each other block, as it takes one
// block of memory. Blocks that are not published are not seen; HitRateCurve accounts for their
// memory by the hits that the cache really has.
//
// The distances tell the hits of LRU. For another policy the sample also runs through small caches
// that evict by it: see PolicySimulation.
//
// A lookup is a whole block of a prompt that could match. A hit counts when the sequence is added,
// a miss when the block is published: its content has no hash before. Other requests that ran in
// between make such a distance a little longer.
//
// The rate is the largest one at which max_samples blocks cover kMaxFactor times the capacity. With
// the default of 16,384 that is at most 1 % for caches of 102,400 blocks or more, and all blocks of
// a cache of 1,024. The rate is fixed, unlike that of SHARDS of a fixed size, which falls for ever
// as new content comes: here the oldest sample leaves instead, and it was beyond kMaxFactor.
//
// The counts halve after a day, or when kHalfLife times the capacity has been looked up, whichever
// is later. So they cover the hours of a day alike, and the longest distance can occur four times.
//
// Invariants
// 1. A block that is followed is held, or has exactly one place in the order. A later place is more
// recent.
// 2. At most max_samples blocks are followed. If all of them are held, a further block is not.
// 3. The tree of counts (Fenwick, "A new data structure for cumulative frequency tables", 1994) has
// at place i the number of taken places that it covers.
//
// Takes all memory at the start: 36 bytes for each sample, 576 KiB by default, and what a
// simulation takes. Deterministic. Thread-compatible. Cost: Samples() is a multiplication and a
// comparison. For a sampled block a look-up in a hash table, and O(log max_samples) for a distance
// or a place. A simulation adds four times the policy's work.
class ReuseDistances {
 public:
  struct Options {
    uint64_t capacity_blocks = 0;  // The window's capacity over all tiers.
    uint32_t max_samples = 0;      // At most ReuseCounts::kMaxDistance. 0: follows nothing.
    std::string_view policy;       // What the window evicts by; empty: unknown, as LRU.
  };
  // A moment in the order of lookups.
  using Moment = uint32_t;
  // What a request has used.
  struct Request {
    Moment since = 0;  // When it looked at its blocks.
    // The number of the last whole block of its prefix that is followed. A hint: the block can be
    // another one by now.
    uint16_t last = PolicySimulation::kNoContent;
  };

  explicit ReuseDistances(const Options& options);

  // Looks at the low half of the hash alone (Knuth, TAOCP 3, 6.4). The groups and the table use the
  // other half.
  bool Samples(BlockHash hash) const {
    return static_cast<uint32_t>(hash.value()) * 0x9E37'79B1u < picked_below_;
  }
  Request Begin() const { return {.since = lookups_}; }

  // --- For any block. Does nothing for a block that is not in the sample. ---

  // The request looked at the block and found it. It is about to hold it.
  void Hit(BlockHash hash, ContentFacts facts, Request& request) {
    if (Samples(hash)) [[unlikely]] {
      CountHit(hash, facts, request);
    }
  }
  // The request, which looked at the block, has computed and published it. It counts as the request
  // found it: if another request counted a miss of the block since then, the distance is that
  // one's. The request holds the block, or is about to.
  void Missed(BlockHash hash, ContentFacts facts, Request& request) {
    if (Samples(hash)) [[unlikely]] {
      CountMiss(hash, facts, request);
    }
  }
  // The request has published the block without having looked at it, and holds it.
  void Published(BlockHash hash, ContentFacts facts, Request& request) {
    if (Samples(hash)) [[unlikely]] {
      Computed(Hold(hash, facts, request));
    }
  }
  // The first holder holds the block. Follows it from now on.
  void Held(BlockHash hash) {
    if (Samples(hash)) [[unlikely]] {
      Request nobody;
      Hold(hash, {}, nobody);
    }
  }
  // The last holder released it.
  void Released(BlockHash hash) {
    if (Samples(hash)) [[unlikely]] {
      Release(hash);
    }
  }
  // It is in the cache, left there by an earlier run of the daemon.
  void Found(BlockHash hash) {
    Held(hash);
    Released(hash);
  }
  // No cache of any size would have it any more: it was taken over, invalidated or lost.
  void Removed(BlockHash hash) {
    if (Samples(hash)) [[unlikely]] {
      Remove(hash);
    }
  }
  // All blocks were removed.
  void Clear();

  // --- Counts over all blocks ---

  // A request came.
  void CountRequest(absl::Time now);
  void CountLookups(uint64_t hits, uint64_t misses);
  // So many blocks of memory have no published content: running sequences have taken them. Called
  // for each request, after its hits.
  void Reserve(uint64_t blocks) {
    if (simulation_ != nullptr) simulation_->Reserve(static_cast<double>(blocks) * counts_.rate);
  }

  ReuseCounts counts() const;

 private:
  using Index = uint16_t;  // The index of an entry.
  static constexpr uint32_t kNoPlace = 0xFFFF'FFFF;
  static constexpr uint16_t kNone = 0xFFFF;
  // A block that is followed. In a free entry, `place` is the next free one.
  struct Entry {
    uint64_t hash = 0;
    uint32_t place = kNoPlace;         // kNoPlace: it is held.
    Moment missed_at = 0;              // The moment of the last miss that counted.
    uint16_t missed_bucket = kNone;    // kNone: it was the first use.
    PolicySimulation::Caches had = 0;  // The simulated caches that had it then.
  };

  static size_t GroupOf(BlockHash hash) { return hash.value() >> 61; }
  static_assert(ReuseCounts::kGroups == 8);

  void CountHit(BlockHash hash, ContentFacts facts, Request& request);
  void CountMiss(BlockHash hash, ContentFacts facts, Request& request);
  // Returns the simulated caches that had it.
  PolicySimulation::Caches Hold(BlockHash hash, ContentFacts facts, Request& request);
  void Computed(PolicySimulation::Caches had) {
    if (simulation_ != nullptr) simulation_->Computed(had);
  }
  void Release(BlockHash hash);
  void Remove(BlockHash hash);
  Index* Find(BlockHash hash);
  size_t Home(uint64_t hash) const { return hash >> 32 & table_mask_; }
  Index Insert(BlockHash hash);
  void Erase(Index* erased);
  void DropOldest();
  // A free place that is more recent than all others.
  uint32_t NextPlace();
  void LeavePlace(Entry& entry);
  void Add(uint32_t place, int change);
  // The taken places up to `place`.
  uint32_t PlacesUpTo(uint32_t place) const;
  uint32_t DistanceOf(const Entry& entry) const {
    return entry.place == kNoPlace ? 0 : followed_ - PlacesUpTo(entry.place);
  }
  void Count(BlockHash hash, size_t bucket);
  // The request looked at the block, which is followed. Returns the simulated caches that had it.
  PolicySimulation::Caches Simulate(Index index, ContentFacts facts, Request& request);
  void CountSimulated(BlockHash hash, PolicySimulation::Caches had);
  static constexpr uint64_t kHalfLife = 64;
  static constexpr absl::Duration kLeastHalfLife = absl::Hours(24);
  // The counts halve in so many steps.
  static constexpr uint64_t kForgettingSteps = 16;
  uint64_t LookupsPerStep() const { return kHalfLife * capacity_blocks_ / kForgettingSteps; }
  bool IsTooEarlyToForget() const;
  void Forget();

  const uint64_t capacity_blocks_;
  const uint32_t max_samples_;
  uint64_t picked_below_ = 0;
  std::vector<Entry> entries_;
  uint32_t first_free_ = 0;
  std::vector<Index> table_;  // Open addressing with linear probes; kNone: no entry.
  uint64_t table_mask_ = 0;
  std::vector<Index> places_;           // The entry at each place; kNone: no entry.
  std::vector<uint16_t> places_up_to_;  // Invariant 3. From 1 on.
  uint32_t next_place_ = 0;
  uint32_t oldest_ = 0;    // No place before it is taken.
  uint32_t followed_ = 0;  // Entries in use.
  uint32_t placed_ = 0;    // Those among them that are not held.
  bool has_dropped_ = false;
  Moment lookups_ = 0;
  ReuseCounts counts_;
  std::unique_ptr<PolicySimulation> simulation_;  // Null: the policy is LRU.
  uint64_t lookups_until_forgetting_ = 0;
  absl::Time last_forgetting_ = absl::InfinitePast();
  absl::Time first_request_ = absl::InfiniteFuture();
  absl::Time last_request_ = absl::InfinitePast();
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_ADVICE_REUSE_DISTANCES_H_
