// Which blocks of one window the pins hold.
#ifndef PAGODA_MANAGER_WINDOW_WINDOW_PINS_H_
#define PAGODA_MANAGER_WINDOW_WINDOW_PINS_H_

#include <cstdint>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "manager/services/operation_scope.h"
#include "manager/window/block_holds.h"
#include "manager/window/prefix_match.h"
#include "manager/window/window_part.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

// Thread-compatible.
//
// Invariants
// 1. A pin holds each of its blocks by one hold, and these stay cached. Before one leaves the tree,
// EndPinsOf() ends the pin as a whole.
// 2. Block::pinned is set for the blocks that pins hold. A tenant's count has each of them once,
// however many of its pins hold it.
class WindowPins final : private WindowPart {
 public:
  struct PinHold {
    PinId pin;
    TenantId tenant;  // The tenant whose share of the pin budget it uses.
    TenantId holder;  // The tenant that is charged for the blocks.
  };

  WindowPins(const WindowFloor& floor, BlockHolds& holds);

  // The blocks that pins hold. With a tenant: those that its pins hold.
  uint32_t pinned_blocks() const { return residency_.counts().pinned_blocks(); }
  uint32_t pinned_blocks(TenantId tenant) const { return tenant_pinned_[tenant.value()]; }
  uint32_t pin_budget_blocks() const { return options_.pin_budget_blocks; }
  // The tenant's share of the pin budget. The default tenant may use all of it.
  uint32_t pin_budget_blocks(TenantId tenant) const;
  // Whether the tenant may pin these blocks in addition. Errors: PIN_BUDGET_EXCEEDED.
  absl::Status CheckPinBudget(TenantId tenant, absl::Span<const BlockId> blocks) const;
  // The blocks that a pin would make `tenant` hold in addition, against its quota.
  BlockNeed PinNeed(absl::Span<const BlockId> blocks, TenantId tenant) const;

  // REQUIRES: PinNeed() is met.
  void Pin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks);
  void Unpin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks);
  // The block is about to leave the tree: ends each of its pins, in all windows.
  void EndPinsOf(OperationScope& op, BlockId id, RemovalReason removal);

  // The pins that hold the block. Cost: O(their number).
  uint32_t PinsOf(BlockId id) const;

  // For tests. Stops the process unless the invariants hold.
  void CheckInvariants() const;

 private:
  // One pin's hold of a block.
  struct BlockPin {
    BlockId block;
    TenantId tenant;
    PinId pin;
    friend auto operator<=>(const BlockPin&, const BlockPin&) = default;
  };

  // The first pin of the block by the tenant. If there is none, the next one in the order of pins_.
  auto FirstPin(BlockId id, TenantId tenant) const {
    return pins_.lower_bound({id, tenant, PinId{0}});
  }
  bool IsPinnedBy(BlockId id, TenantId tenant) const {
    const auto it = FirstPin(id, tenant);
    return it != pins_.end() && it->block == id && it->tenant == tenant;
  }

  BlockHolds& holds_;
  absl::btree_set<BlockPin> pins_;       // Ascending by block.
  std::vector<uint32_t> tenant_pinned_;  // Pinned blocks by TenantId.
};

}  // namespace pagoda

#endif  // PAGODA_MANAGER_WINDOW_WINDOW_PINS_H_
