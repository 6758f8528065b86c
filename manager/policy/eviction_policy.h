// The interface that decides which block is evicted next. The manager reports what happens to
// blocks; a policy keeps any order that it likes.
#ifndef PAGODA_MANAGER_POLICY_EVICTION_POLICY_H_
#define PAGODA_MANAGER_POLICY_EVICTION_POLICY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/words/block_facts.h"
#include "pools/types.h"

namespace pagoda {

// The candidates of one window, tier and tenant: cached blocks that nothing holds and that can be
// evicted now. Under full attention these have no cached children in their tier. A policy may order
// candidates as it likes within a priority, but a lower priority is evicted before a higher one. A
// better policy is a new class, not a change of the manager.
//
// Each call brings the block's facts at that moment. While a block is held, its priority changes
// without a call. A policy knows a block by its slot in the tier, because slots are fewer than
// block ids, which cover all tiers. Only the slot of a cached block's nearest copy is named: never
// the spare, a duplicate, or the slot of a block outside the tree. The policies of a tier's tenants
// share their tables by slot, so a slot is in one of them at a time. Between Inserted and Removed
// all calls about a slot go to the same policy and mean the same block.
//
// Thread-compatible, together with the policies that it shares tables with. Every call is amortised
// O(1).
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // Whether the next five calls do anything; constant. If no policy of a tier wants them, the
  // manager skips them.
  virtual bool follows_contents() const { return true; }
  // The block entered the tier's cache: new content, or a block from another tier. It is no
  // candidate yet. A policy can recognise content that it evicted before by the hash.
  virtual void Inserted(const BlockFacts&) {}
  // A block of an earlier run of the daemon entered the tier's cache, before any request.
  virtual void Recovered(const BlockFacts& block) { Inserted(block); }
  // A prefix match used the block; `uses` counts it already. The block can be a candidate or not.
  virtual void Touched(const BlockFacts&) {}
  // The block left the tier's cache, with the same hash and slot. It is no candidate at that time.
  virtual void Removed(const BlockFacts&) {}
  // What is known of the block's copy in `other`, in another tier of the window, holds for the copy
  // here. Only copies on disk have others that policies know. The call comes
  // * to the disk's policy: after Inserted, and before Released or Unparked, while the block is in
  //   memory; and when it leaves memory for its copy on disk, after Removed there;
  // * to a memory tier's policy: before Inserted, if the block comes from the disk, which keeps its
  //   copy.
  virtual void Inherited(const BlockFacts& /*block*/, SlotRef /*other*/) {}

  // The block became a candidate: its last holder released it, or its priority changed. In the
  // second case Withdrawn came just before, with the old priority.
  virtual void Released(const BlockFacts&) = 0;
  // The block became a candidate because its last child left. It had been released before that.
  virtual void Unparked(const BlockFacts&) = 0;
  // The candidate was passed: it is in a sliding window, and no likely prompt can use it. It goes
  // before the others, as far as they are alike.
  virtual void Passed(const BlockFacts& block) {
    Withdrawn(block);
    Unparked(block);
  }
  // The block is no candidate any more: it is held again, leaves, or changes its priority.
  virtual void Withdrawn(const BlockFacts&) = 0;
  // The slot of the candidate to evict first, which stays a candidate; kNoSlot if there is none.
  virtual SlotIndex Victim() const = 0;
  // Whether the candidate is worth more than `comes`, a cached block of the tier `from` above that
  // would take its place. Then `comes` leaves the cache instead, or is not written to the disk.
  // Their priorities were compared before.
  virtual bool Keeps(const BlockFacts& /*candidate*/, const BlockFacts& /*comes*/,
                     Tier /*from*/) const {
    return false;
  }

  // One call for an eviction among many: Withdrawn(victim), Removed(victim), then
  // Unparked(*unparked) unless it is null. Returns the next Victim(). A request that evicts
  // hundreds of blocks makes this call for each instead of four. Override it only to do the same
  // faster.
  virtual SlotIndex Evicted(const BlockFacts& victim, const BlockFacts* unparked);

  // What the policies of the window have learned from requests, for policies of the same name in
  // another run of the daemon; empty: they learn nothing. Each of them answers for all.
  virtual std::vector<std::byte> Learned() const { return {}; }
  // Takes that over, before any other call. Errors: INVALID_ARGUMENT (the policy learns nothing, or
  // cannot use these bytes); then it begins anew.
  virtual absl::Status RestoreLearned(absl::Span<const std::byte> learned);
};

// One tier of a window, for its policies.
struct PolicyTier {
  uint32_t num_slots = 0;  // 0: the window has no blocks in the tier.
  bool on_disk = false;
  // A policy that learns from a sample of the contents takes at most so many of what the tier
  // holds. The rest of the sample is in proportion.
  uint32_t most_sampled = 2048;
};
using PolicyTiers = std::array<PolicyTier, kMaxTiers>;  // Nearest first.
// By tier, then by tenant. Empty for a tier without slots.
using TierPolicies = std::array<std::vector<std::unique_ptr<EvictionPolicy>>, kMaxTiers>;

// Makes the policies of that name for one window: for each of its tiers, one for each tenant. Their
// shared tables exist as long as any of them. Names: EvictionPolicyNames(). Errors:
// INVALID_ARGUMENT, with the names that exist.
absl::StatusOr<TierPolicies> MakeEvictionPolicies(std::string_view name, const PolicyTiers& tiers,
                                                  uint16_t num_tenants);
const std::vector<std::string_view>& EvictionPolicyNames();  // The first one is the default.

}  // namespace pagoda

#endif  // PAGODA_MANAGER_POLICY_EVICTION_POLICY_H_
