#ifndef PAGODA_MANAGER_POLICY_LEARNED_POLICY_H_
#define PAGODA_MANAGER_POLICY_LEARNED_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "manager/policy/classed_candidates.h"
#include "manager/policy/eviction_policy.h"
#include "manager/policy/learned_window.h"

namespace pagoda {

// "learned": evicts the block whose content is expected to bring the fewest hits for the time that
// it stays cached, strictly by priority first. The expectation is learned from the requests: see
// ReuseIndex. A class is what is known of a block: how often requests used its content before, also
// before it was last evicted, and whether it is of a prompt or a reply, or a request's last block.
//
// Each class is a list by last use, and gives up its oldest block. Of these the one with the
// smallest index goes first. It starts as LRU. A tier goes by the index while a shadow of it on a
// sample of the contents says that this has more hits (see ReuseSample).
//
// All tiers of a window learn from the same requests, each for its own size. A block that is worth
// less than all of the next tier leaves the cache instead of displacing one,
// and is not written to a full disk. A copy on disk has the class and the age of the block. All
// tenants of a window learn together too; each gives up blocks of its own.
//
// Memory beyond "lru": see LearnedWindow. A tenant takes 0.2 KiB in each tier, and 3.2 KiB for each
// priority that its blocks have.
class LearnedPolicy final : public EvictionPolicy {
 public:
  LearnedPolicy(std::shared_ptr<LearnedWindow> window, size_t tier, bool on_disk)
      : window_(std::move(window)),
        tier_(tier),
        on_disk_(on_disk),
        key_shift_(window_->KeyShift(tier)),
        candidates_(&window_->arena(tier)) {}

  void Inserted(const BlockFacts& block) override;
  void Recovered(const BlockFacts& block) override;
  void Touched(const BlockFacts& block) override;
  void Removed(const BlockFacts& block) override;
  void Inherited(const BlockFacts& block, SlotRef other) override {
    window_->Inherit(tier_, block, other);
  }
  void Released(const BlockFacts& block) override;
  void Unparked(const BlockFacts& block) override;
  void Passed(const BlockFacts& block) override;
  void Withdrawn(const BlockFacts& block) override;
  SlotIndex Victim() const override { return FindVictim().slot; }
  bool Keeps(const BlockFacts& candidate, const BlockFacts& comes, Tier from) const override;
  SlotIndex Evicted(const BlockFacts& victim, const BlockFacts* unparked) override;
  std::vector<std::byte> Learned() const override;
  absl::Status RestoreLearned(absl::Span<const std::byte> learned) override;

 private:
  uint64_t present() const { return window_->step() >> key_shift_; }
  // The key of a block by its last use: the step of that use, in units of 2^key_shift_ steps.
  uint64_t KeyOf(SlotIndex slot) const {
    return (window_->step() - std::min(window_->step(), window_->AgeOf(tier_, slot))) >> key_shift_;
  }

  // The victim, of the window's version. It lies in no list. It comes before all others of its
  // class: if its parent is known by the same when it leaves, the parent is the next victim, and no
  // list changes. So a chain of blocks leaves without a look at the lists.
  static constexpr uint64_t kNoVersion = ~uint64_t{0};
  struct InHand {
    SlotIndex slot = kNoSlot;
    Priority priority;
    uint32_t of_class = 0;
    uint64_t key = 0;  // The key of its list entry.
    uint64_t version = 0;
    LearnedWindow::Known known;
    bool goes_by_known = false;  // `known` has that class and no later key.
  };
  bool IsNext(const BlockFacts& unparked) const {
    return in_hand_.goes_by_known && in_hand_.version == window_->version(tier_) &&
           in_hand_.priority == unparked.priority &&
           in_hand_.known == window_->KnownWhenUnparked(tier_, unparked.slot);
  }
  void PushFront(const BlockFacts& block);
  InHand FindVictim() const;
  bool TakeUnparked(const BlockFacts& block);
  SlotIndex TakeVictim();
  void PutBack();
  SlotIndex EvictedAlone(const BlockFacts& victim, const BlockFacts* unparked);

  const std::shared_ptr<LearnedWindow> window_;  // Owned by all policies of the window.
  const size_t tier_;
  const bool on_disk_;
  const uint32_t key_shift_;
  ClassedCandidates candidates_;  // All but the one in hand.
  InHand in_hand_;
};

// Makes policies of this class; see MakeEvictionPolicies().
TierPolicies MakeLearnedPolicies(const PolicyTiers& tiers, uint16_t num_tenants);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_LEARNED_POLICY_H_
