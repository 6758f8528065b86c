// Checks whether there is capacity for an operation, and says which limit refuses it.
#ifndef PAGODA_MANAGER_SEQUENCES_CAPACITY_CHECKS_H_
#define PAGODA_MANAGER_SEQUENCES_CAPACITY_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/tenant_id.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/tree/sequence.h"
#include "manager/window/prefix_match.h"
#include "manager/window/window_set.h"

namespace pagoda {

// Changes nothing and owns nothing.
//
// Invariant: a refusal names the limit. INVALID_COUNT: the request can never fit.
// TENANT_QUOTA_EXCEEDED: only the tenant itself can free enough blocks. BLOCKS_EXHAUSTED: others
// can, too. SEQUENCE_BYTES_EXHAUSTED: see SequenceAccounts.
class CapacityChecks {
 public:
  using Match = PrefixMatch;

  // REQUIRES: both outlive the checks.
  CapacityChecks(const WindowSet& windows, const SequenceAccounts& accounts)
      : windows_(windows), accounts_(accounts) {}
  CapacityChecks(const CapacityChecks&) = delete;
  CapacityChecks& operator=(const CapacityChecks&) = delete;

  // Whether every window can ever give the tenant this capacity behind the matches: `named_tokens`
  // need a slot eventually, `reserved_tokens` now. An empty `matches` means that nothing is cached.
  absl::Status CheckCapacity(TenantId tenant, uint64_t named_tokens, uint64_t reserved_tokens,
                             absl::Span<const Match> matches) const;
  // The same for one window, starting at `first_block`.
  absl::Status CheckCapacity(TenantId tenant, uint32_t window_index, uint64_t named_tokens,
                             uint64_t reserved_tokens, uint32_t first_block) const;
  // Errors: TENANT_QUOTA_EXCEEDED (the tenant's quota refuses), BLOCKS_EXHAUSTED (only the pool
  // refuses).
  absl::Status CheckNeeds(TenantId tenant, uint32_t window_index, const BlockNeeds& needs) const {
    return needs.met() ? absl::OkStatus() : Refusal(tenant, window_index, needs);
  }
  // Whether every window can give the sequence capacity up to `reserved_tokens`, ever and now, and
  // whether its tenant may keep the longer tables.
  absl::Status CheckGrowth(const Sequence& sequence, uint64_t reserved_tokens) const;

  // The fixed cost of a sequence: itself, its entries in the lists of its session and of all
  // sequences, and its root in each tree.
  uint64_t SequenceBytes() const {
    return sizeof(Sequence) + 192 + windows_.size() * sizeof(SequenceBlocks);
  }
  // The bytes of `entries` table entries in each window.
  uint64_t TableBytes(uint64_t entries) const {
    return entries * (sizeof(BlockHandle) + sizeof(BlockId)) * windows_.size();
  }

 private:
  absl::Status Refusal(TenantId tenant, uint32_t window_index, const BlockNeeds& needs) const;

  const WindowSet& windows_;
  const SequenceAccounts& accounts_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_CAPACITY_CHECKS_H_
