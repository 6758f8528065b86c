#include "manager/window/window_pins.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"
#include "pools/sizing.h"

namespace pagoda {

WindowPins::WindowPins(const WindowFloor& floor, BlockHolds& holds)
    : WindowPart(floor), holds_(holds), tenant_pinned_(options_.tenants->size()) {}

uint32_t WindowPins::pin_budget_blocks(TenantId tenant) const {
  if (tenant == kDefaultTenant) return options_.pin_budget_blocks;
  return static_cast<uint32_t>(options_.tenants->ShareOf(tenant, options_.pin_budget_blocks));
}

absl::Status WindowPins::CheckPinBudget(TenantId tenant, absl::Span<const BlockId> blocks) const {
  uint64_t pinned = pinned_blocks(), own = pinned_blocks(tenant);
  for (const BlockId id : blocks) {
    if (!store_[id].pinned) ++pinned;
    if (tenant != kDefaultTenant && !IsPinnedBy(id, tenant)) ++own;
  }
  if (tenant != kDefaultTenant && own > pin_budget_blocks(tenant)) {
    return MakeError(Reason::kPinBudgetExceeded,
                     absl::StrCat("the tenant's pins would hold ", Counted(own, "block"),
                                  " in window ", WindowName(window()), "; its share is ",
                                  pin_budget_blocks(tenant), " of ", pin_budget_blocks()));
  }
  if (pinned > pin_budget_blocks()) {
    return MakeError(
        Reason::kPinBudgetExceeded,
        absl::StrCat("would pin ", Counted(pinned, "block"), " in window ", WindowName(window()),
                     "; at most ", pin_budget_blocks(), " are allowed"));
  }
  return absl::OkStatus();
}

BlockNeed WindowPins::PinNeed(absl::Span<const BlockId> blocks, TenantId tenant) const {
  BlockNeed need{.available = accounts().Left(kPrimaryTier, tenant)};
  for (const BlockId id : blocks) {
    // A pin of the tenant's own block only turns cached into held, within its usage.
    if (accounts().owner(id) == tenant) continue;
    if (!accounts().Holds(id, tenant, store_[id].refs)) ++need.blocks;
  }
  return need;
}

void WindowPins::Pin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    holds_.Hold(op, id, pin.holder);
    residency_.counts().MarkPinned(id);
    if (!IsPinnedBy(id, pin.tenant)) ++tenant_pinned_[pin.tenant.value()];
    pins_.insert({id, pin.tenant, pin.pin});
  }
  residency_.GiveUpAboveQuota(op, pin.holder);
}

// Last block first, as a sequence releases.
void WindowPins::Unpin(OperationScope& op, const PinHold& pin, absl::Span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    const BlockId id = blocks[i];
    const auto own = pins_.find({id, pin.tenant, pin.pin});
    PAGODA_CHECK(own != pins_.end(), "rule 15: pins are counted");
    // Other pins of the block are its neighbours in the set.
    const auto next = pins_.erase(own);
    const BlockPin* after = next == pins_.end() ? nullptr : &*next;
    const BlockPin* before = next == pins_.begin() ? nullptr : &*std::prev(next);
    const auto pins_it = [id](const BlockPin* other) {
      return other != nullptr && other->block == id;
    };
    const auto is_own = [&](const BlockPin* other) {
      return pins_it(other) && other->tenant == pin.tenant;
    };
    if (!is_own(before) && !is_own(after)) --tenant_pinned_[pin.tenant.value()];
    if (!pins_it(before) && !pins_it(after)) residency_.counts().UnmarkPinned(id);
    holds_.EndHold(op, id, pin.holder);
  }
}

void WindowPins::EndPinsOf(OperationScope& op, BlockId id, RemovalReason removal) {
  while (store_[id].pinned)
    services_.pins->EndPinOfLeaving(op, FirstPin(id, kDefaultTenant)->pin, removal);
}

uint32_t WindowPins::PinsOf(BlockId id) const {
  uint32_t pins = 0;
  for (auto pin = FirstPin(id, kDefaultTenant); pin != pins_.end() && pin->block == id; ++pin) {
    ++pins;
  }
  return pins;
}

void WindowPins::CheckInvariants() const {
  std::vector<uint32_t> tenant_pinned(tenant_pinned_.size());
  for (auto it = pins_.begin(); it != pins_.end(); ++it) {
    const bool first = it == pins_.begin() || std::prev(it)->block != it->block ||
                       std::prev(it)->tenant != it->tenant;
    if (first) ++tenant_pinned[it->tenant.value()];
  }
  PAGODA_CHECK(tenant_pinned == tenant_pinned_, "rule 15: a tenant's pinned blocks are counted");
}

}  // namespace pagoda
