#include "manager/tiers/file_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pagoda {
namespace {

// How often an erase is tried.
constexpr size_t kMaxEraseTries = 8;

}  // namespace

void FileSlots::EndRead(SlotIndex slot) {
  --uses_.at(slot).reads;
  EndUse(slot);
}

SlotIndex FileSlots::TakeForWrite() {
  counts_.CountInTransit(slots_.disk(), +1);
  return slots_.Take(slots_.disk());
}

void FileSlots::Release(SlotIndex slot) {
  counts_.CountInTransit(slots_.disk(), -1);
  slots_.Release(slots_.FileSlot(slot));
}

void FileSlots::ReleaseWritten(SlotIndex slot) {
  Release(slot);
  OrderDrop(slot);
}

void FileSlots::DropRecovered(SlotIndex slot) {
  slots_.Release(slots_.FileSlot(slot));
  OrderDrop(slot);
}

void FileSlots::OrderDrop(SlotIndex slot) {
  lanes_.Add({.lane = Lane::kBackup,
              .kind = Order::Kind::kDrop,
              .window_index = index_,
              .target = slots_.FileSlot(slot)});
}

void FileSlots::EraseWhenWritten(SlotIndex slot) {
  uses_[slot] = {.writes = 1, .erases = 1, .orphaned = true};
  to_erase_.push_back(slot);
}

void FileSlots::EndWrite(SlotIndex slot, Written written) {
  Use& use = uses_.at(slot);
  --use.writes;
  use.retired = written == Written::kRetired;
  EndUse(slot);
}

void FileSlots::LetGo(SlotIndex slot, Lost lost) {
  slots_.Orphan(slots_.FileSlot(slot));
  counts_.CountInTransit(slots_.disk(), +1);
  Use& use = uses_[slot];
  use.orphaned = true;
  use.dropped = lost == Lost::kDropped;
  if (lost == Lost::kErased) {
    ++use.erases;
    to_erase_.push_back(slot);
  }
  EndUse(slot);
}

void FileSlots::EndUse(SlotIndex slot) {
  const auto it = uses_.find(slot);
  if (it == uses_.end()) return;
  const Use use = it->second;
  if (use.reads != 0 || use.writes != 0 || use.erases != 0) return;
  uses_.erase(it);
  if (!use.orphaned || use.retired) return;
  if (use.dropped) {
    ReleaseWritten(slot);
  } else {
    Release(slot);
  }
}

Ticket FileSlots::OrderErase(Order::Kind kind) {
  // The carrier is told of a dropped slot only when the reads of it have ended, and erases only the
  // dropped slots that it knows of. So the others are named, in the order of their numbers.
  std::vector<SlotIndex> dropped;
  for (auto& [slot, use] : uses_) {
    if (kind == Order::Kind::kEraseAll || !use.dropped) continue;
    use.dropped = false;
    ++use.erases;
    dropped.push_back(slot);
  }
  std::sort(dropped.begin(), dropped.end());
  to_erase_.insert(to_erase_.end(), dropped.begin(), dropped.end());
  Erasing erasing{.kind = kind, .slots = std::exchange(to_erase_, {}), .tickets = {}};
  erased_blocks_ += erasing.slots.size();
  if (kind == Order::Kind::kEraseAll) {
    PAGODA_CHECK(erasing.slots.empty(), "an invalidation orders its own erase");
    ++resets_;
  }
  OrderErase(std::move(erasing));
  return lanes_.last(Lane::kBackup);
}

void FileSlots::OrderErase(Erasing erasing) {
  const Ticket ticket = lanes_.Add({.lane = Lane::kBackup,
                                    .kind = erasing.kind,
                                    .window_index = index_,
                                    .slots = erasing.slots});
  erasing.tickets.push_back(ticket);
  erasing_.emplace(ticket, std::move(erasing));
}

// A failed erase is tried again. Its ticket is not done before that.
bool FileSlots::EraseEnded(Ticket ticket, const absl::Status& status) {
  const auto it = erasing_.find(ticket);
  if (it == erasing_.end()) return false;
  Erasing erasing = std::move(it->second);
  erasing_.erase(it);
  if (!status.ok() && !absl::IsCancelled(status)) {
    if (erasing.tickets.size() < kMaxEraseTries) {
      OrderErase(std::move(erasing));
      return true;
    }
    ++failed_erases_;
  }
  for (const SlotIndex slot : erasing.slots) {
    --uses_.at(slot).erases;
    EndUse(slot);
  }
  if (erasing.kind == Order::Kind::kEraseAll) --resets_;
  for (const Ticket done : erasing.tickets) lanes_.Close(Lane::kBackup, done);
  return true;
}

void FileSlots::AddStats(DiskTierStats* stats) const {
  stats->erased_blocks = erased_blocks_;
  stats->failed_erases = failed_erases_;
  stats->retired_slots = retired_slots_;
}

uint32_t FileSlots::CheckInvariants(const std::vector<bool>& copies) const {
  uint32_t in_transit = retired_slots_;
  for (const auto& [slot, use] : uses_) {
    if (use.orphaned && !use.retired) ++in_transit;
    PAGODA_CHECK(use.orphaned != copies[slot.value()], "a copy is a block's, or on its way out");
  }
  return in_transit;
}

}  // namespace pagoda
