// Prefixes that must not be evicted.
#ifndef PAGODA_MANAGER_SEQUENCES_PREFIX_PINS_H_
#define PAGODA_MANAGER_SEQUENCES_PREFIX_PINS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "events/event.h"
#include "manager/accounts/session_table.h"
#include "manager/accounts/tenants.h"
#include "manager/api/operation.h"
#include "manager/api/sequence_calls.h"
#include "manager/sequences/capacity_checks.h"
#include "manager/sequences/pin_table.h"
#include "manager/sequences/prefix_matcher.h"
#include "manager/services/event_recorder.h"
#include "manager/services/operation_scope.h"
#include "manager/window/window_block_manager.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"

namespace pagoda {

// Owns the pins. Thread-compatible. The caller begins and ends the operation in which a pin is made
// or ends.
//
// Invariant: a pin's blocks are cached and held in every window. A pin ends as a whole: first comes
// its event, which names a block that is still cached. Then every window releases its blocks.
class PrefixPins final : public PinEnder {
 public:
  struct Options {
    uint64_t budget_blocks = 0;  // The most pinned at once, over all windows.
    absl::Duration max_lease = absl::InfiniteDuration();  // The longest lease of a tenant's pin.
  };
  // REQUIRES: the references outlive the pins.
  PrefixPins(const Options& options, const TenantTable& tenants, const SessionTable& sessions,
             const WindowSet& windows, const PrefixMatcher& matcher, const CapacityChecks& capacity,
             EventRecorder& recorder, Deadlines& deadlines)
      : max_lease_(options.max_lease),
        tenants_(tenants),
        sessions_(sessions),
        windows_(windows),
        matcher_(matcher),
        capacity_(capacity),
        recorder_(recorder),
        deadlines_(deadlines),
        pins_(&tenants, options.budget_blocks) {}
  PrefixPins(const PrefixPins&) = delete;
  PrefixPins& operator=(const PrefixPins&) = delete;

  // CachedPrefixes describes these as Pin, Unpin and ListPins.
  absl::StatusOr<PinnedPrefix> PinPrefix(OperationScope& op, SessionId session,
                                         const SequencePrompt& prefix, absl::Duration lease);
  absl::Status UnpinPrefix(OperationScope& op, PinId pin, TenantId tenant);
  ListedPins ListPins(TenantId tenant) const;

  // Ends pins whose lease is over, until they have released kMaxEndsByTime blocks.
  void Expire(OperationScope& op);
  // Ends the pins up to `last`, because the cache is cleared. Returns how many blocks the ended
  // pins had. The result is below `max_blocks` if no such pin is left.
  uint64_t EndUpTo(OperationScope& op, PinId last, uint64_t max_blocks);
  void EndPinOfLeaving(OperationScope& op, PinId pin, RemovalReason removal) override;

  size_t size() const { return pins_.size(); }
  // The last pin that was made; 0: none.
  PinId last() const { return pins_.last(); }
  // For tests: adds the holders of the blocks of the window with this index.
  void AddHolders(size_t window_index, WindowBlockManager::Holders* holders) const;

 private:
  absl::StatusOr<absl::Duration> LeaseFor(TenantId tenant, absl::Duration asked) const;
  // Whether the quota of the pin's holder covers its blocks in this window.
  absl::Status CheckQuota(uint32_t window_index, const PinEntry& entry,
                          const NamespaceKey& name_space) const;
  // Records the event, then ends the pin. REQUIRES: the pin exists, and its blocks are in the tree.
  void End(OperationScope& op, PinId pin, PinEnd why,
           std::optional<RemovalReason> removal = std::nullopt);

  const absl::Duration max_lease_;
  const TenantTable& tenants_;
  const SessionTable& sessions_;
  const WindowSet& windows_;
  const PrefixMatcher& matcher_;
  const CapacityChecks& capacity_;
  EventRecorder& recorder_;
  Deadlines& deadlines_;
  PinTable pins_;
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_PREFIX_PINS_H_
