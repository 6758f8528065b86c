// Checks whether there is room for an operation, and says which limit refuses.
#ifndef PAGODA_MANAGER_CAPACITY_CHECKS_H_
#define PAGODA_MANAGER_CAPACITY_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/tenant_id.h"
#include "manager/sequence.h"
#include "manager/sequence_accounts.h"
#include "manager/window_block_manager.h"
#include "manager/window_set.h"

namespace pagoda {

// Changes nothing and owns nothing.
//
// Invariant: a refusal names the limit that refuses. INVALID_COUNT: it can never be.
// TENANT_QUOTA_EXCEEDED: only the tenant can give back what it lacks. BLOCKS_EXHAUSTED: others can,
// too. SEQUENCE_BYTES_EXHAUSTED: see SequenceAccounts.
class CapacityChecks {
 public:
  using Match = WindowBlockManager::Match;

  // Both outlive the checks.
  CapacityChecks(const WindowSet& windows, const SequenceAccounts& accounts)
      : windows_(windows), accounts_(accounts) {}
  CapacityChecks(const CapacityChecks&) = delete;
  CapacityChecks& operator=(const CapacityChecks&) = delete;

  // Whether every window can ever give the tenant such room behind the matches: `named_tokens` need
  // a place one day, `reserved_tokens` now. No matches: nothing is cached.
  absl::Status CheckCapacity(TenantId tenant, uint64_t named_tokens, uint64_t reserved_tokens,
                             absl::Span<const Match> matches) const;
  // The same of one window, from `first_block` on.
  absl::Status CheckCapacity(TenantId tenant, uint32_t window_index, uint64_t named_tokens,
                             uint64_t reserved_tokens, uint32_t first_block) const;
  // TENANT_QUOTA_EXCEEDED where the tenant's quota refuses, BLOCKS_EXHAUSTED where the pool alone
  // does.
  absl::Status CheckNeeds(TenantId tenant, uint32_t window_index,
                          const WindowBlockManager::Needs& needs) const {
    return needs.met() ? absl::OkStatus() : Refusal(tenant, window_index, needs);
  }
  // Whether every window can ever, and now, give the sequence room up to `reserved_tokens`, and its
  // tenant may keep the longer tables.
  absl::Status CheckGrowth(const Sequence& sequence, uint64_t reserved_tokens) const;

  // What a sequence costs beside what grows: itself, its entries in the lists of its session and of
  // all sequences, its root in each tree.
  uint64_t SequenceBytes() const {
    return sizeof(Sequence) + 192 + windows_.size() * sizeof(SequenceBlocks);
  }
  // Bytes of `entries` entries in a table of each window.
  uint64_t TableBytes(uint64_t entries) const {
    return entries * (sizeof(BlockHandle) + sizeof(BlockId)) * windows_.size();
  }

 private:
  absl::Status Refusal(TenantId tenant, uint32_t window_index,
                       const WindowBlockManager::Needs& needs) const;

  const WindowSet& windows_;
  const SequenceAccounts& accounts_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_CAPACITY_CHECKS_H_
