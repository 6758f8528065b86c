// What operators and stores read of a cache: bounded pages of its content.
#ifndef PAGODA_MANAGER_CACHE_LISTS_H_
#define PAGODA_MANAGER_CACHE_LISTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/accounts/session_table.h"
#include "manager/accounts/tenants.h"
#include "manager/api/sequence_calls.h"
#include "manager/sequences/prefix_matcher.h"
#include "manager/sequences/running_sequences.h"
#include "manager/services/event_recorder.h"
#include "manager/tree/prefix_uses.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"
#include "manager/words/lists.h"
#include "manager/words/publishable_prefix.h"
#include "manager/words/tier_spec.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible. Nothing here is an operation: no list applies expiries, and only
// TakePublishable changes anything (its queue).
class CacheLists {
 public:
  // All references outlive the lists. `tiers` is only read now.
  CacheLists(absl::Span<const TierSpec> tiers, const TenantTable& tenants,
             const SequenceAccounts& accounts, const SessionTable& sessions,
             const WindowSet& windows, const PrefixMatcher& matcher,
             const RunningSequences& sequences, const EventRecorder& recorder);
  CacheLists(const CacheLists&) = delete;
  CacheLists& operator=(const CacheLists&) = delete;

  // At most `limit` sessions, ascending, starting at the id `from`.
  std::vector<SessionRow> Sessions(SessionId from, size_t limit, absl::Time now) const;
  // At most `limit` sequences, ascending by session and id, starting at `from`. `only`, if given,
  // restricts the list to one session. Cost: O(limit + sessions).
  std::vector<SequenceRow> Sequences(std::optional<SessionId> only, SequenceKey from,
                                     size_t limit) const;
  // By tenant.
  std::vector<TenantUsage> TenantUses() const;
  // How much of a prompt is cached. Cost: O(tokens). Errors: INVALID_COUNT (no tokens),
  // INVALID_ARGUMENT (CheckPrompt).
  absl::StatusOr<InspectedPrefix> InspectPrefix(const SequencePrompt& prompt) const;

  // The states of the slots [from, from + states.size()) of one tier, in the window with this
  // index. Cost: O(states).
  void SlotStates(uint32_t window_index, Tier tier, uint32_t from,
                  absl::Span<SlotState> states) const;
  // The prefix tree of the largest window, by block id, starting at `from`. Ids are below
  // num_prefix_nodes(). Cost: O(nodes).
  uint32_t num_prefix_nodes() const;
  void PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const;
  // Where the bytes of blocks lie in host memory: for each block, its nearest copy there into which
  // no copy is in flight. Nothing holds the block there: its bytes can be overwritten as soon as it
  // leaves or moves. Unknown ids are not found. Cost: O(blocks).
  LocatedBlocks LocateBlocks(uint32_t window_index, absl::Span<const BlockId> blocks) const;
  // A prefix of the largest window; nothing if it is no longer cached. Cost: O(1).
  std::optional<PrefixUse> DescribePrefix(const UsedPrefix& prefix) const;

  // --- Publishing to a store ---

  // With ManagerOptions::publish_min_uses, a whole block of the largest window is queued once in
  // its life in the cache, when it has become worth publishing. TakePublishable takes queued
  // blocks, the newest first, and appends the prefix that ends at each. A prefix also stands for
  // the queued blocks above its end. Blocks that have left memory meanwhile are skipped, and in a
  // sliding window also those below a hole. Appends `max_prefixes` prefixes at most. Stops after
  // about `max_blocks` blocks, those above the ends included, but not within a prefix. Cost:
  // O(blocks looked at + tokens appended).
  void TakePublishable(uint32_t max_prefixes, uint32_t max_blocks,
                       std::vector<PublishablePrefix>* out);
  PublishableBlocks publishable() const;

 private:
  const TenantTable& tenants_;
  const SequenceAccounts& accounts_;
  const SessionTable& sessions_;
  const WindowSet& windows_;
  const PrefixMatcher& matcher_;
  const RunningSequences& sequences_;
  const EventRecorder& recorder_;
  TierSet host_tiers_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_CACHE_LISTS_H_
