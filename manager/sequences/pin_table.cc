#include "manager/sequences/pin_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

PinTable::PinTable(const TenantTable* tenants, uint64_t budget_blocks)
    : tenants_(tenants),
      max_references_(std::max(kMaxReferences, budget_blocks)),
      accounts_(tenants->size()) {}

const PinEntry* PinTable::Find(PinId pin) const {
  const auto it = pins_.find(pin);
  return it == pins_.end() ? nullptr : &it->second;
}

absl::Status PinTable::CheckCapacity(TenantId tenant, uint64_t blocks) const {
  const auto check = [blocks](const char* whose, uint64_t pins, uint64_t references,
                              uint64_t max_pins, uint64_t max_references) {
    if (pins >= max_pins) {
      return MakeError(
          Reason::kPinBudgetExceeded,
          absl::StrCat("open: ", Counted(pins, "pin"), whose, "; the limit is ", max_pins));
    }
    if (references + blocks > max_references) {
      return MakeError(
          Reason::kPinBudgetExceeded,
          absl::StrCat("all pins", whose, " would name ", Counted(references + blocks, "block"),
                       " together; the limit is ", max_references));
    }
    return absl::OkStatus();
  };
  if (tenant != kDefaultTenant) {
    const Account& account = accounts_[tenant.value()];
    absl::Status status =
        check(" of this tenant", account.pins, account.references,
              tenants_->ShareOf(tenant, kMaxPins), tenants_->ShareOf(tenant, max_references_));
    if (!status.ok()) return status;
  }
  return check("", pins_.size(), references_, kMaxPins, max_references_);
}

PinId PinTable::Add(PinEntry entry) {
  last_ = PinId{last_.value() + 1};
  entry.info.pin = last_;
  Account& account = accounts_[entry.tenant.value()];
  ++account.pins;
  account.references += entry.references();
  references_ += entry.references();
  if (entry.info.expires != absl::InfiniteFuture()) {
    deadlines_.insert({entry.info.expires, last_});
  }
  pins_.emplace_hint(pins_.end(), last_, std::move(entry));
  return last_;
}

PinEntry PinTable::Take(PinId pin) {
  const auto node = pins_.extract(pin);
  PAGODA_CHECK(!node.empty(), "rule 15: a pin ends once");
  PinEntry entry = std::move(node.mapped());
  Account& account = accounts_[entry.tenant.value()];
  --account.pins;
  account.references -= entry.references();
  references_ -= entry.references();
  deadlines_.erase({entry.info.expires, pin});
  return entry;
}

std::optional<PinId> PinTable::FirstExpired(absl::Time now) const {
  if (deadlines_.empty() || deadlines_.begin()->first > now) return std::nullopt;
  return deadlines_.begin()->second;
}

absl::Time PinTable::next_deadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

}  // namespace pagoda
