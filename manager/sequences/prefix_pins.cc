#include "manager/sequences/prefix_pins.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {

absl::StatusOr<absl::Duration> PrefixPins::LeaseFor(TenantId tenant, absl::Duration asked) const {
  if (asked <= absl::ZeroDuration()) {
    return MakeError(Reason::kInvalidArgument, "a pin's lease must be positive");
  }
  if (tenant == kDefaultTenant || asked <= max_lease_) return asked;
  if (asked == absl::InfiniteDuration()) return max_lease_;
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("a pin's lease of ", absl::FormatDuration(asked), "; at most ",
                                absl::FormatDuration(max_lease_), " is allowed"));
}

absl::Status PrefixPins::CheckQuota(uint32_t window_index, const PinEntry& entry,
                                    const NamespaceKey& name_space) const {
  if (!tenants_.any()) return absl::OkStatus();
  const WindowBlockManager& window = *windows_[window_index];
  const std::vector<BlockId>& blocks = entry.blocks[window_index];
  if (entry.holder != tenants_.OwnerOf(name_space) && blocks.size() > window.Quota(entry.holder)) {
    return MakeError(
        Reason::kInvalidCount,
        absl::StrCat(Counted(blocks.size(), "block"), " to pin; the tenant's quota in window ",
                     WindowName(window.window()), " is ", window.Quota(entry.holder)));
  }
  return capacity_.CheckNeeds(entry.holder, window_index,
                              {.pool = {}, .quota = window.pins().PinNeed(blocks, entry.holder)});
}

absl::StatusOr<PinnedPrefix> PrefixPins::PinPrefix(OperationScope& op, SessionId session,
                                                   const SequencePrompt& prefix,
                                                   absl::Duration lease) {
  if (absl::Status status = CheckPrefix(prefix); !status.ok()) return status;
  PinEntry entry{.info = {},
                 .tenant = sessions_.TenantOf(session),
                 .holder = *tenants_.Charged(sessions_.TenantOf(session), prefix.name_space, {}),
                 .blocks = {}};
  const absl::StatusOr<absl::Duration> given = LeaseFor(entry.tenant, lease);
  if (!given.ok()) return given.status();
  const std::vector<PrefixMatcher::Match> matches = matcher_.FindWholePrefixes(prefix);
  if (matches.front().tokens == 0) return PinnedPrefix{};
  uint32_t blocks = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    entry.blocks.push_back(windows_[w]->prefixes().PinnableBlocks(matches[w]));
    blocks += static_cast<uint32_t>(entry.blocks.back().size());
  }
  // The quota is checked first: only it can say that the pin will never be possible.
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    absl::Status status = CheckQuota(w, entry, prefix.name_space);
    if (!status.ok()) return status;
  }
  if (absl::Status status = pins_.CheckCapacity(entry.tenant, blocks); !status.ok()) return status;
  for (size_t w = 0; w < windows_.size(); ++w) {
    absl::Status status = windows_[w]->pins().CheckPinBudget(entry.tenant, entry.blocks[w]);
    if (!status.ok()) return status;
  }
  entry.info = {.client_name = sessions_.Require(session).client_name,
                .name_space = prefix.name_space,
                .pinned_tokens = matches.front().tokens,
                .blocks = blocks,
                .expires = op.now + *given,
                .tenant = tenants_[entry.tenant].name};
  deadlines_.EndsAt(entry.info.expires);
  const PinId pin = pins_.Add(std::move(entry));
  const PinEntry& added = *pins_.Find(pin);
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->pins().Pin(op, {.pin = pin, .tenant = added.tenant, .holder = added.holder},
                            added.blocks[w]);
  }
  return PinnedPrefix{
      .pin = pin, .pinned_tokens = added.info.pinned_tokens, .blocks = added.info.blocks};
}

absl::Status PrefixPins::UnpinPrefix(OperationScope& op, PinId pin, TenantId tenant) {
  const PinEntry* entry = pins_.Find(pin);
  if (entry == nullptr || (tenant != kDefaultTenant && entry->tenant != tenant)) {
    return MakeError(Reason::kUnknownPin, absl::StrCat("pin ", pin.value(),
                                                       " was never made, or has ended: it was "
                                                       "unpinned, its lease ran out, or its prefix "
                                                       "left the cache"));
  }
  End(op, pin, PinEnd::kUnpinned);
  return absl::OkStatus();
}

void PrefixPins::End(OperationScope& op, PinId pin, PinEnd why,
                     std::optional<RemovalReason> removal) {
  const PinEntry entry = pins_.Take(pin);
  const WindowBlockManager& largest = *windows_.back();
  const BlockId last = entry.blocks.back().back();
  recorder_.PinEnded(largest.window(), last, largest.hash(last),
                     {.pin = pin, .why = why, .removal = removal}, entry.tenant);
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->pins().Unpin(op, {.pin = pin, .tenant = entry.tenant, .holder = entry.holder},
                              entry.blocks[w]);
  }
}

uint64_t PrefixPins::EndUpTo(OperationScope& op, PinId last, uint64_t max_blocks) {
  uint64_t blocks = 0;
  while (blocks < max_blocks && !pins_.empty() && pins_.begin()->first <= last) {
    blocks += pins_.begin()->second.info.blocks;
    End(op, pins_.begin()->first, PinEnd::kPrefixLeft, RemovalReason::kCleared);
  }
  return blocks;
}

void PrefixPins::EndPinOfLeaving(OperationScope& op, PinId pin, RemovalReason removal) {
  End(op, pin, PinEnd::kPrefixLeft, removal);
}

void PrefixPins::Expire(OperationScope& op) {
  uint64_t blocks = 0;
  while (blocks < kMaxEndsByTime) {
    const std::optional<PinId> pin = pins_.FirstExpired(op.now);
    if (!pin.has_value()) break;
    blocks += pins_.Find(*pin)->references();
    End(op, *pin, PinEnd::kExpired);
  }
  deadlines_.EndsAt(pins_.next_deadline());
}

ListedPins PrefixPins::ListPins(TenantId tenant) const {
  ListedPins list;
  for (const auto& [id, pin] : pins_) {
    if (tenant == kDefaultTenant || pin.tenant == tenant) list.pins.push_back(pin.info);
  }
  for (const auto& window : windows_) {
    list.pinned_blocks += tenant == kDefaultTenant ? window->pins().pinned_blocks()
                                                   : window->pins().pinned_blocks(tenant);
    list.budget_blocks += window->pins().pin_budget_blocks(tenant);
  }
  return list;
}

void PrefixPins::AddHolders(size_t window_index, WindowBlockManager::Holders* holders) const {
  for (const auto& [id, pin] : pins_) {
    for (const BlockId block : pin.blocks[window_index]) {
      (*holders)[block.value()].push_back(pin.holder);
    }
  }
}

}  // namespace pagoda
