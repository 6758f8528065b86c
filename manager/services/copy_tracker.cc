#include "manager/services/copy_tracker.h"

#include <algorithm>

#include "base/check.h"

namespace pagoda {

Ticket CopyTracker::Order(uint32_t window, SlotRef source, SlotRef target, BlockRef target_block,
                          uint32_t num_tokens) {
  PAGODA_CHECK(source != target && num_tokens > 0, "a copy has two slots and something to copy");
  last_ = Ticket{last_.value() + 1};
  Touches& from = slots_[{window, source}];
  const Ticket after_source = from.last;
  const Ticket source_arrival = from.arrival;
  from.last = last_;
  Touches& to = slots_[{window, target}];
  const Ticket after_target = to.last;
  to = {.last = last_, .arrival = last_};
  copies_.emplace(
      last_,
      Copy{.window = window, .source = source, .target = target, .target_block = target_block});
  if (source_arrival != Ticket{}) copies_.at(source_arrival).followers.push_back(last_);
  orders_.push_back({.ticket = last_,
                     .window = windows_[window],
                     .source = source,
                     .target = target,
                     .num_tokens = num_tokens,
                     .after = {after_source, after_target}});
  return last_;
}

Ticket CopyTracker::LastTouch(uint32_t window, SlotRef slot) const {
  if (slots_.empty()) return Ticket{};
  const auto it = slots_.find({window, slot});
  return it == slots_.end() ? Ticket{} : it->second.last;
}

Ticket CopyTracker::Arrival(uint32_t window, SlotRef slot) const {
  if (slots_.empty()) return Ticket{};
  const auto it = slots_.find({window, slot});
  return it == slots_.end() ? Ticket{} : it->second.arrival;
}

void CopyTracker::Overwrite(uint32_t window, SlotRef slot) {
  if (slots_.empty()) return;
  if (const auto it = slots_.find({window, slot}); it != slots_.end()) it->second.arrival = {};
}

void CopyTracker::AddReader(uint32_t window, SlotRef slot, SequenceKey sequence) {
  const Ticket arrival = Arrival(window, slot);
  if (arrival != Ticket{}) copies_.at(arrival).readers.insert(sequence);
}

void CopyTracker::RemoveReader(uint32_t window, SlotRef slot, SequenceKey sequence) {
  const Ticket arrival = Arrival(window, slot);
  if (arrival != Ticket{}) copies_.at(arrival).readers.erase(sequence);
}

bool CopyTracker::KnowsReader(uint32_t window, SlotRef slot, SequenceKey sequence) const {
  const Ticket arrival = Arrival(window, slot);
  return arrival == Ticket{} || copies_.at(arrival).readers.contains(sequence);
}

CopyTracker::Completion CopyTracker::Complete(Ticket ticket, const absl::Status& status) {
  const auto it = copies_.find(ticket);
  if (it == copies_.end()) return {};
  Copy copy = std::move(it->second);
  copies_.erase(it);
  Completion completion{.known = true, .lost = std::nullopt};
  if (!status.ok() || copy.poisoned) {
    // A copy that reads bytes which did not arrive copies garbage, so it has failed too.
    for (const Ticket follower : copy.followers) {
      const auto other = copies_.find(follower);
      if (other != copies_.end()) other->second.poisoned = true;
    }
    if (Arrival(copy.window, copy.target) == ticket) {
      completion.lost = {.window = copy.window,
                         .block = copy.target_block,
                         .target = copy.target,
                         .readers = std::move(copy.readers)};
    }
  }
  EndTouch(copy.window, copy.source, ticket);
  EndTouch(copy.window, copy.target, ticket);
  return completion;
}

void CopyTracker::EndTouch(uint32_t window, SlotRef slot, Ticket ticket) {
  const auto it = slots_.find({window, slot});
  if (it == slots_.end()) return;
  if (it->second.arrival == ticket) it->second.arrival = {};
  if (it->second.last == ticket) slots_.erase(it);
}

Ticket CopyTracker::completed() const {
  return copies_.empty() ? last_ : Ticket{copies_.begin()->first.value() - 1};
}

std::vector<SlotRef> CopyTracker::SlotsInFlight(uint32_t window) const {
  std::vector<SlotRef> slots;
  for (const auto& [slot, touches] : slots_) {
    if (slot.window == window) slots.push_back(slot.slot);
  }
  std::sort(slots.begin(), slots.end(), [](const SlotRef& a, const SlotRef& b) {
    return a.tier != b.tier ? a.tier < b.tier : a.slot < b.slot;
  });
  return slots;
}

}  // namespace pagoda
