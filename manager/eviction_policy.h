// Who goes next. The manager says what happens to blocks; a policy keeps whatever order it likes.
#ifndef PAGODA_MANAGER_EVICTION_POLICY_H_
#define PAGODA_MANAGER_EVICTION_POLICY_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/block_facts.h"
#include "pools/types.h"

namespace pagoda {

// The candidates of one window, tier and tenant: cached blocks that nobody holds and that may go
// now (under full attention: that have no cached children in their tier). Each call brings the
// block's facts as they are at that moment. While a block is held its priority changes without a
// call. A policy knows a block by its slot in the tier: slots are fewer than block ids, which cover
// all tiers. The policies of a tier's tenants share what they keep by slot, so a slot is in one of
// them at a time: between Inserted and Removed all calls about it go to the same one, and are about
// the same block. Only the slot of a cached block's nearest copy is named: never the spare, a
// duplicate, or the slot of a block outside the tree. A better policy is a new class, not a change
// of the manager. Whatever it prefers, a candidate of lower priority goes before one of higher
// priority. Thread-compatible, together with the policies that it shares with; every call is O(1)
// amortised.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // Whether the next three calls do anything; always the same. Where none of a tier's policies
  // wants them, none is made.
  virtual bool follows_contents() const { return true; }
  // The block came into the tier's cache: new content, or a block from another tier. No candidate
  // yet. A policy may remember by its hash what it let go before.
  virtual void Inserted(const BlockFacts&) {}
  // A prefix match used the block, and is counted among its uses. It may be a candidate or not.
  virtual void Touched(const BlockFacts&) {}
  // The block left the tier's cache, with the same hash, out of the same slot. It is no candidate
  // at that time.
  virtual void Removed(const BlockFacts&) {}

  // The block became a candidate because its last holder let go, or because its priority changed:
  // then it was withdrawn just before, with the old one.
  virtual void Released(const BlockFacts&) = 0;
  // The block became a candidate because its last child left; it had been let go before that.
  virtual void Unparked(const BlockFacts&) = 0;
  // The block is no candidate any more: it is held again, leaves, or changes its priority.
  virtual void Withdrawn(const BlockFacts&) = 0;
  // The slot of the candidate that should go first, still a candidate afterwards; kNoSlot where
  // there is none.
  virtual SlotIndex Victim() const = 0;
};

// Makes the policies of that name for one window and tier, one a tenant, over slots below
// `num_slots`. What they share lives as long as any of them. Names: EvictionPolicyNames(). Errors:
// INVALID_ARGUMENT, naming the policies there are.
absl::StatusOr<std::vector<std::unique_ptr<EvictionPolicy>>> MakeEvictionPolicies(
    std::string_view name, uint32_t num_slots, uint16_t num_tenants);
const std::vector<std::string_view>& EvictionPolicyNames();  // The first one is the default.

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EVICTION_POLICY_H_
