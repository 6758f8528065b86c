// Who goes next. The manager says what happens to blocks; a policy keeps whatever order it likes.
#ifndef PAGODA_MANAGER_EVICTION_POLICY_H_
#define PAGODA_MANAGER_EVICTION_POLICY_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "events/block_hash.h"
#include "events/event.h"
#include "pools/types.h"

namespace pagoda {

// The candidates of one window, tier and tenant: cached blocks that nobody holds and that may go
// now (under full attention: that have no cached children in their tier). The policies of a tier's
// tenants share what they keep by block id, so a block is in one of them at a time: between
// Inserted and Removed all calls about it go to the same one. A better policy is a new class, not
// a change of the manager. Whatever it prefers, a candidate of lower priority goes before one of
// higher priority. Thread-compatible, together with the policies that it shares with; every call is
// O(1) amortised.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // `id` came into the tier's cache: new content, or a block from another tier. No candidate yet. A
  // policy may remember by `content`, the block's hash, what it let go before; BlockHash{} is
  // nothing to remember by.
  virtual void Inserted(BlockId, BlockHash /*content*/) {}
  // A prefix match used `id`. It may be a candidate or not.
  virtual void Touched(BlockId) {}
  // `id` left the tier's cache, with the same `content`. It is no candidate at that time.
  virtual void Removed(BlockId, BlockHash /*content*/) {}

  // `id` became a candidate because its last holder let go.
  virtual void Released(BlockId id, Priority priority) = 0;
  // `id` became a candidate because its last child left; it had been let go before that.
  virtual void Unparked(BlockId id, Priority priority) = 0;
  // `id` is no candidate any more: it is held again, got a child, or leaves.
  virtual void Withdrawn(BlockId id) = 0;
  // The candidate that should go first, still a candidate afterwards; kNoBlock where there is none.
  virtual BlockId Victim() const = 0;
};

// Makes the policies of that name for one window and tier, one a tenant, over block ids below
// `num_ids`. What they share lives as long as any of them. Names: EvictionPolicyNames(). Errors:
// INVALID_ARGUMENT, naming the policies there are.
absl::StatusOr<std::vector<std::unique_ptr<EvictionPolicy>>> MakeEvictionPolicies(
    std::string_view name, uint32_t num_ids, uint16_t num_tenants);
const std::vector<std::string_view>& EvictionPolicyNames();  // The first one is the default.

}  // namespace pagoda

#endif  // PAGODA_MANAGER_EVICTION_POLICY_H_
