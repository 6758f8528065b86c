#include "manager/services/copy_tracker.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pagoda {

Ticket CopyTracker::Order(uint32_t window, SlotRef source, SlotRef target, BlockRef target_block,
                          uint32_t num_tokens) {
  PAGODA_CHECK(source != target && num_tokens > 0, "a copy has two slots and something to copy");
  const Touches from = TouchesOf(window, source);
  const Ticket after_target = TouchesOf(window, target).last;
  const Ticket ticket = lanes_.Add({.lane = Lane::kMemory,
                                    .window_index = window,
                                    .source = source,
                                    .target = target,
                                    .num_tokens = num_tokens,
                                    .after = {from.last, after_target}});
  slots_[{window, source}].last = ticket;
  slots_[{window, target}] = {.last = ticket, .arrival = ticket};
  copies_.emplace(
      ticket,
      Copy{.window = window, .source = source, .target = target, .target_block = target_block});
  if (from.arrival != Ticket{}) copies_.at(from.arrival).followers.push_back(ticket);
  return ticket;
}

CopyTracker::Touches CopyTracker::TouchesOf(uint32_t window, SlotRef slot) const {
  if (slots_.empty()) return {};
  const auto it = slots_.find({window, slot});
  return it == slots_.end() ? Touches() : it->second;
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

std::optional<CopyTracker::Lost> CopyTracker::Complete(Ticket ticket, const absl::Status& status) {
  const auto it = copies_.find(ticket);
  PAGODA_CHECK(it != copies_.end(), "a copy that ends is in flight");
  Copy copy = std::move(it->second);
  copies_.erase(it);
  lanes_.Close(Lane::kMemory, ticket);
  std::optional<Lost> lost;
  if (!status.ok() || copy.poisoned) {
    // A copy that reads bytes which did not arrive copies garbage, so it has failed too.
    for (const Ticket follower : copy.followers) {
      const auto other = copies_.find(follower);
      if (other != copies_.end()) other->second.poisoned = true;
    }
    if (Arrival(copy.window, copy.target) == ticket) {
      lost = {.window = copy.window,
              .block = copy.target_block,
              .target = copy.target,
              .readers = std::move(copy.readers)};
    }
  }
  EndTouch(copy.window, copy.source, ticket);
  EndTouch(copy.window, copy.target, ticket);
  return lost;
}

void CopyTracker::EndTouch(uint32_t window, SlotRef slot, Ticket ticket) {
  const auto it = slots_.find({window, slot});
  if (it == slots_.end()) return;
  if (it->second.arrival == ticket) it->second.arrival = {};
  if (it->second.last == ticket) slots_.erase(it);
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
