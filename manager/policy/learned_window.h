// What the policies "learned" of one window share.
#ifndef PAGODA_MANAGER_POLICY_LEARNED_WINDOW_H_
#define PAGODA_MANAGER_POLICY_LEARNED_WINDOW_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/big_array.h"
#include "manager/policy/candidate_arena.h"
#include "manager/policy/evicted_content.h"
#include "manager/policy/eviction_policy.h"
#include "manager/policy/reuse_sample.h"
#include "manager/words/block_facts.h"
#include "pools/types.h"

namespace pagoda {

// The uses of all blocks of a window, in all its tiers, and what is learned from them.
//
// A step of time is 1/128 of the accesses that fill the first tier. A block's last use is kept in
// 16 bits of steps. One that was not used for 2^15 of them counts as that old.
//
// Each tier learns from a sample of its own (see ReuseSample), as if it and the tiers above were
// one cache: an age that is short for the host is long for the GPU.
//
// Each slot takes 3 bytes, and each slot in memory 4 more for contents that left: twice as many as
// there are slots, and four times as many in a small window, which can take 256 KiB for them. The
// samples take at most 0.7 MB for each tier besides. Thread-compatible, together with all policies
// of the window.
class LearnedWindow {
 public:
  // What is known of a block. Three bytes, which mostly lie in one cache line.
  struct [[gnu::packed]] Known {
    uint16_t last_use = 0;  // The step's low bits.
    uint8_t reuse_class : 6 = 0;
    uint8_t is_new : 1 = 0;  // No request has matched or released it since it came.
    // In memory: it came from another tier, and is about to be a candidate. On disk: it is not in
    // memory.
    uint8_t moved : 1 = 0;

    friend bool operator==(const Known& a, const Known& b) {
      using Bytes = std::array<uint8_t, 3>;
      return std::bit_cast<Bytes>(a) == std::bit_cast<Bytes>(b);
    }
  };
  static_assert(sizeof(Known) == 3 && ReuseClass::kCount <= 64);
  static_assert(BlockFacts::kMaxUses < ReuseClass::kUses);

  explicit LearnedWindow(const PolicyTiers& tiers);

  // --- Blocks. A slot in the tier has the block's state while the tier has the block. ---

  // A memory tier got the block: new content, or from another memory tier, which has lost it just
  // before. Only new content is an access.
  void Came(size_t tier, const BlockFacts& block);
  // A block of an earlier run lies in the memory tier. That is no access: its uses and its age are
  // not known, so nothing can be learned from it.
  void Recovered(size_t tier, const BlockFacts& block);
  // The block lies on disk, and no more is known of it than these facts. Its last use is now.
  void CameToDisk(size_t tier, const BlockFacts& block);
  // The block's copy in the tier has the class and the age of its copy in `other`. One of the two
  // tiers is on disk. If the block leaves memory for its copy on disk, Left came just before. If it
  // comes to memory, Came is next, and is no access.
  void Inherit(size_t tier, const BlockFacts& block, SlotRef other);
  // The copy on disk is gone.
  void LeftDisk(size_t tier, const BlockFacts& block);
  // A request matched the block.
  void Matched(size_t tier, const BlockFacts& block);
  // The block left the memory tier.
  void Left(size_t tier, const BlockFacts& block);
  // The block became a candidate: its last holder released it, or it came from another tier.
  void Released(size_t tier, const BlockFacts& block);
  // The block became a candidate because its last child left: it is not the end of a request.
  void Unparked(size_t tier, SlotIndex slot) {
    Settle();
    tiers_[tier].known[slot.value()].is_new = 0;
  }
  // Left for one of many blocks, if LeavesAtOnce(). `known`: of the block.
  bool LeavesAtOnce() const {
    return arrivals_.size == 0 && !departures_.full() && !has_several_tiers_;
  }
  void LeftAtOnce(BlockHash content, Known known) {
    Remember(content, ReuseClass::UsesOf(known.reuse_class));
  }

  // From now on the candidate counts as not used for 2^15 steps.
  void Passed(size_t tier, SlotIndex slot);

  // --- Worth ---

  Known KnownOf(size_t tier, SlotIndex slot) const { return tiers_[tier].known[slot.value()]; }
  Known KnownWhenUnparked(size_t tier, SlotIndex slot) const {
    Known known = KnownOf(tier, slot);
    known.is_new = 0;
    return known;
  }
  // The reuse class of a block that is a candidate or was one before.
  uint32_t ClassOf(size_t tier, SlotIndex slot) const {
    return tiers_[tier].known[slot.value()].reuse_class;
  }
  // Ends the waiting arrivals: their classes are known then.
  void Settle() {
    if (arrivals_.size != 0) EndArrivals(arrivals_.size);
  }
  uint64_t step() const { return step_; }
  // Steps since the block's last use.
  uint64_t AgeOf(size_t tier, SlotIndex slot) const {
    return static_cast<uint16_t>(step_ - tiers_[tier].known[slot.value()].last_use);
  }
  // Until it changes, the tier's IndexOf() gives the same and blocks get no older.
  uint64_t version(size_t tier) const { return step_ + tiers_[tier].sample->sampled(); }
  // Whether the tier's blocks go by their index; otherwise by the time of their last use.
  bool trusts_index(size_t tier) const { return tiers_[tier].sample->trusts_index(); }
  // What a block is worth to that tier.
  float IndexOf(size_t tier, uint32_t reuse_class, uint64_t age) const {
    const ReuseSample& sample = *tiers_[tier].sample;
    return sample.index().at(reuse_class, sample.BinOf(age * accesses_a_step_));
  }
  // What was learned, by tier, for the window's policies in another run of the daemon.
  std::vector<ReuseTable> Learned() const;
  // If the tables are fewer than the tiers, the last tiers begin with the last table's counts, and
  // have yet to earn the trust. REQUIRES: a table.
  void Restore(absl::Span<const ReuseTable> tables);
  // A key of the tier's calendars is 2^KeyShift() steps: about an eighth of the tier's slots.
  uint32_t KeyShift(size_t tier) const { return tiers_[tier].key_shift; }
  CandidateArena& arena(size_t tier) { return *tiers_[tier].arena; }

 private:
  struct TierTables {
    bool on_disk = false;
    ReuseSample* sample = nullptr;
    std::unique_ptr<CandidateArena> arena;
    BigArray<Known> known;  // By slot.
    uint32_t key_shift = 0;
    uint32_t next_swept = 0;
  };
  // A block that left a memory tier in the last call, or is about to leave the disk for memory. It
  // may come to another tier in the next call.
  struct Moving {
    size_t tier = 0;
    BlockId block = kNoBlock;
    BlockHash content;
    Known known;
  };

  // New content, of which the window does not yet know whether it was there before.
  struct Arrival {
    BlockHash content;
    Known* known;
    uint8_t uses;
    ContentKind kind;
  };
  struct Departure {
    BlockHash content;
    uint32_t uses;
  };
  // A few look-ups wait, so that the processor fetches their memory meanwhile.
  template <class T, uint32_t kMost>
  struct Waiting {
    std::array<T, kMost> items;
    uint32_t first = 0;
    uint32_t size = 0;

    // To be filled in place: a copy of a few small fields waits until they are written.
    T& Push() { return items[(first + size++) % kMost]; }
    template <class End>
    void Pop(uint32_t count, End end) {
      for (uint32_t i = 0; i < count; ++i) end(items[(first + i) % kMost]);
      first += count;
      size -= count;
    }
    bool full() const { return size == kMost; }
  };

  static ContentKind KindOf(const BlockFacts& block) {
    return block.content.origin() == ContentOrigin::kReply ? ContentKind::kReply
                                                           : ContentKind::kPrompt;
  }
  void EndArrivals(uint32_t count);
  void EndDepartures(uint32_t count);
  void Remember(BlockHash content, uint32_t uses);
  bool CameFromAnotherTier(size_t tier, const BlockFacts& block);
  void LeftOneOfSeveralTiers(size_t tier, const BlockFacts& block);
  void Access(BlockHash content, uint32_t reuse_class);
  void EndMove();
  void NextStep();

  const uint32_t accesses_a_step_;
  uint32_t accesses_left_;  // In this step.
  uint64_t step_ = 0;
  std::array<TierTables, kMaxTiers> tiers_;
  const bool has_several_tiers_;
  Moving moving_;
  EvictedContent evicted_;  // Notes: how often it was used.
  Waiting<Arrival, 16> arrivals_;
  // They end in batches, because nothing but an arrival depends on them.
  static constexpr uint32_t kDepartureBatch = 16;
  Waiting<Departure, 2 * kDepartureBatch> departures_;
  std::vector<std::unique_ptr<ReuseSample>> samples_;  // In the order of the tiers.
  uint64_t sample_rate_ = 0;                           // The highest of theirs.
  uint64_t accesses_to_tell_ = 0;                      // Those that the samples do not know yet.
};

// Inline, because a request makes these calls for hundreds of blocks.

inline void LearnedWindow::Came(size_t tier, const BlockFacts& block) {
  if (has_several_tiers_ && CameFromAnotherTier(tier, block)) return;
  // What arrives may have left just before.
  if (departures_.size != 0) EndDepartures(departures_.size);
  if (arrivals_.full()) EndArrivals(1);
  evicted_.Prefetch(block.hash);
  Arrival& arrival = arrivals_.Push();
  arrival.content = block.hash;
  arrival.known = &tiers_[tier].known[block.slot.value()];
  arrival.uses = block.uses;
  arrival.kind = KindOf(block);
}

inline void LearnedWindow::Left(size_t tier, const BlockFacts& block) {
  Settle();
  if (has_several_tiers_) return LeftOneOfSeveralTiers(tier, block);
  Remember(block.hash, ReuseClass::UsesOf(tiers_[tier].known[block.slot.value()].reuse_class));
}

inline void LearnedWindow::Remember(BlockHash content, uint32_t uses) {
  if (departures_.full()) EndDepartures(kDepartureBatch);
  evicted_.Prefetch(content);
  Departure& departure = departures_.Push();
  departure.content = content;
  departure.uses = uses;
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_LEARNED_WINDOW_H_
