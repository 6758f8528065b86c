// The operations on cached prefixes by their content, without a sequence.
#ifndef PAGODA_MANAGER_SEQUENCES_CACHED_PREFIXES_H_
#define PAGODA_MANAGER_SEQUENCES_CACHED_PREFIXES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "events/block_key.h"
#include "manager/accounts/session_table.h"
#include "manager/accounts/tenants.h"
#include "manager/api/operation.h"
#include "manager/api/sequence_calls.h"
#include "manager/sequences/operation_runner.h"
#include "manager/sequences/prefix_matcher.h"
#include "manager/sequences/prefix_pins.h"
#include "manager/sequences/running_sequences.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"
#include "manager/words/retention.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// A prefix is named by everything that a block's identity has: the namespace, the tokens, the extra
// ids and the items. Nothing else of a SequencePrompt is read. The calls that move, pin or retain
// blocks take the prefix that RunningSequences::AddSequence would match, with two differences: the
// last token can match too, and the end is cut to whole blocks and a tail that is cached as it is.
//
// Each call that takes the time is an operation of its own (operation_runner.h). Thread-compatible.
class CachedPrefixes {
 public:
  // All references outlive it.
  CachedPrefixes(size_t num_tiers, const TenantTable& tenants, const SessionTable& sessions,
                 const WindowSet& windows, const PrefixMatcher& matcher,
                 const RunningSequences& sequences, PrefixPins& pins, OperationRunner& runner)
      : num_tiers_(num_tiers),
        tenants_(tenants),
        sessions_(sessions),
        windows_(windows),
        matcher_(matcher),
        sequences_(sequences),
        pins_(pins),
        runner_(runner) {}
  CachedPrefixes(const CachedPrefixes&) = delete;
  CachedPrefixes& operator=(const CachedPrefixes&) = delete;

  // --- What is cached, and what a sequence would take ---

  // How many tokens an AddSequence would match; 0 if CheckPrompt refuses the prompt. `blocks`, if
  // given, receives the matched blocks of the largest window. Cost: O(matched tokens), and O(items)
  // unless the content was checked before.
  uint32_t Match(const SequencePrompt& prompt, std::vector<BlockHandle>* blocks = nullptr) const;
  // The same, and how much is cached in each tier. REQUIRES: CheckPrompt(prompt) is OK.
  MatchedPrefix Describe(const SequencePrompt& prompt) const;
  // For `name_space` instead of the query's own. `content_check`: see SequencePrompt. Errors:
  // INVALID_COUNT (no tokens), UNKNOWN_SEQUENCE; those of CheckPrompt and TenantTable::Charged.
  absl::StatusOr<CapacityAnswer> QueryCapacity(SessionId session,
                                               const pagoda::QueryCapacity& query,
                                               const NamespaceKey& name_space,
                                               const absl::Status* content_check = nullptr) const;

  // --- Errors of all that follow: those of CheckPrefix ---

  // Offloads the prefix's evictable blocks to the tier below the first, from the end back to the
  // first block that is held. Blocks there of no higher priority are evicted for them.
  absl::StatusOr<OffloadedPrefix> Offload(const SequencePrompt& prefix, absl::Time now);
  struct PrefetchOptions {
    PrefetchTarget target = PrefetchTarget::kPrimary;
    absl::Time deadline = absl::InfiniteFuture();  // For the fetches.
  };
  // Onboards the prefix's blocks that lie in memory, from the beginning, as far as slots can be
  // freed. Orders fetches of the blocks that lie on disk alone into the last tier in memory;
  // running fetches take at most a quarter of it. A fetched block becomes matchable when all blocks
  // above it are.
  absl::StatusOr<PrefetchedPrefix> Prefetch(const SequencePrompt& prefix, absl::Time now,
                                            const PrefetchOptions& options);
  absl::StatusOr<PrefetchedPrefix> Prefetch(const SequencePrompt& prefix, absl::Time now) {
    return Prefetch(prefix, now, PrefetchOptions());
  }
  // Keeps the prefix's blocks from being evicted, in any tier, until Unpin or the end of `lease`.
  // In a sliding window it pins only the blocks that the prefix's end needs. The pin outlasts the
  // session. It ends as a whole when one of its blocks leaves the tree: by a reset, Invalidate or a
  // failed copy, or in a sliding window because a block above it leaves and no more holes are
  // possible. Each end is an Updated event. If nothing of the prefix is cached there is no pin, and
  // PinnedPrefix::pin is 0. Further errors: INVALID_ARGUMENT (a lease that is not positive, or a
  // tenant's above max_pin_lease), PIN_BUDGET_EXCEEDED (blocks, or PinTable's limits, in total or
  // for the session's tenant), TENANT_QUOTA_EXCEEDED, INVALID_COUNT (more blocks of the default
  // tenant than the tenant's quota).
  absl::StatusOr<PinnedPrefix> Pin(SessionId session, const SequencePrompt& prefix,
                                   absl::Duration lease, absl::Time now);
  // A tenant can end the pins that its own sessions made; the default tenant can end any. Errors:
  // only UNKNOWN_PIN.
  absl::Status Unpin(PinId pin, absl::Time now, TenantId tenant = kDefaultTenant);
  // The pins that the tenant's own sessions made; all pins for the default tenant.
  ListedPins ListPins(TenantId tenant = kDefaultTenant) const { return pins_.ListPins(tenant); }
  // Forgets every cached block whose content, from the root on, begins with the prefix. Without
  // tokens it forgets the whole namespace. Blocks that sequences hold leave the tree and become
  // private. Returns the number of blocks that left. Cost: O(that number). Errors: only those of
  // CheckPrompt. `durable`, if given, receives a ticket of the backup lane: when it is done, no
  // such content comes back from a disk after a restart. That includes content that the disk had
  // dropped before.
  absl::StatusOr<uint64_t> Invalidate(const SequencePrompt& prefix, absl::Time now,
                                      Ticket* durable = nullptr);
  // Gives each of the prefix's blocks the priority and duration of the range that holds its first
  // token. A running clock starts again. For a block of another tenant than `tenant` the range
  // applies only if KeepsAtLeast() holds. Returns the number of blocks that the ranges name.
  // Further errors: INVALID_ARGUMENT (CheckRetention).
  absl::StatusOr<uint32_t> SetRetention(const SequencePrompt& prefix,
                                        const SequenceRetention& retention, absl::Time now,
                                        TenantId tenant = kDefaultTenant);

 private:
  // How much a running sequence still needs.
  CapacityAnswer CapacityOf(const Sequence& sequence, uint32_t max_new_tokens) const;
  void AddQuotas(TenantId tenant, CapacityAnswer& answer) const;

  const size_t num_tiers_;
  const TenantTable& tenants_;
  const SessionTable& sessions_;
  const WindowSet& windows_;
  const PrefixMatcher& matcher_;
  const RunningSequences& sequences_;
  PrefixPins& pins_;
  OperationRunner& runner_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_CACHED_PREFIXES_H_
