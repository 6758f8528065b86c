#include "tests/sim/record/ledger.h"

#include <algorithm>

#include "tests/sim/words/fail.h"

namespace pagoda::sim {

Ledger::Ledger(const SimConfig* config, uint32_t window_index)
    : config_(config), window_index_(window_index) {
  const SimConfig::Window& window = config->windows[window_index];
  for (const Tier tier : kTiers) {
    owners_[Index(tier)].assign(config->slots_in(window_index, tier), kNone);
  }
  available_ = window.primary();
}

void Ledger::Place(uint32_t id, SlotRef slot) {
  Unplace(id);
  AddCopy(id, slot);
}

void Ledger::AddCopy(uint32_t id, SlotRef slot) {
  BlockFacts& facts = (*this)[id];
  if (facts.copies[Index(slot.tier)] != slot.slot) DropCopy(id, slot.tier);
  facts.copies[Index(slot.tier)] = slot.slot;
  owners_[Index(slot.tier)][slot.slot.value()] = id;
  FindPlace(id);
}

void Ledger::DropCopy(uint32_t id, Tier tier) {
  SlotIndex& slot = (*this)[id].copies[Index(tier)];
  if (slot == kNoSlot) return;
  uint32_t& owner = owners_[Index(tier)][slot.value()];
  if (owner == id) owner = kNone;
  slot = kNoSlot;
}

void Ledger::RemoveCopy(uint32_t id, SlotRef slot) {
  if ((*this)[id].copies[Index(slot.tier)] != slot.slot) return;
  DropCopy(id, slot.tier);
  FindPlace(id);
}

void Ledger::KeepCopies(uint32_t id, TierSet tiers) {
  for (const Tier tier : kTiers) {
    if (!tiers.contains(tier)) DropCopy(id, tier);
  }
  FindPlace(id);
}

void Ledger::Unplace(uint32_t id) { KeepCopies(id, {}); }

void Ledger::FindPlace(uint32_t id) {
  BlockFacts& facts = (*this)[id];
  facts.placed = false;
  for (const Tier tier : kTiers) {
    if (facts.placed || facts.copies[Index(tier)] == kNoSlot) continue;
    facts.placed = true;
    facts.place = {tier, facts.copies[Index(tier)]};
  }
}

void Ledger::BeginCount() {
  for (BlockFacts& facts : facts_) facts.refs = facts.pins = facts.deferred = 0;
  reserved_.clear();
}

bool Ledger::IsReserved(SlotRef slot) const {
  return std::find(reserved_.begin(), reserved_.end(), slot) != reserved_.end();
}

void Ledger::Hold(BlockId id, Holder holder) {
  BlockFacts& facts = (*this)[id];
  ++facts.refs;
  facts.pins += holder == Holder::kPin ? 1 : 0;
  facts.deferred += holder == Holder::kDefer ? 1 : 0;
}

void Ledger::EndCount(const Shadow& shadow) {
  pinned_blocks_ = 0;
  for (uint32_t id = 0; id < facts_.size(); ++id) {
    if (facts_[id].pins > 0) ++pinned_blocks_;
    if (facts_[id].refs == 0 && !shadow.node(id).cached()) Unplace(id);
  }
  available_ = 0;
  for (uint32_t s = 0; s < config_->windows[window_index_].primary(); ++s) {
    const uint32_t id = owners_[0][s];
    const bool can_go =
        id == kNone ? !IsReserved({kPrimaryTier, SlotIndex{s}}) : facts_[id].refs == 0;
    if (can_go) ++available_;
  }
}

// The slot of a backup that the carrier does not have yet is unknown here. Reads and writes of the
// file are not among the copies between memories.
void Ledger::CheckDiskStats(const WindowStats& stats, const Shadow& shadow, Reset reset) const {
  const Tier disk = config_->disk();
  const TierOccupancy& told = stats.tiers[Index(disk)];
  // Cut-off blocks keep their slots until the reset releases them. A fetch can keep a slot longer.
  if (reset == Reset::kGoesOn) return;
  TierOccupancy counted;
  PriorityCounts priorities = {};
  const std::vector<uint32_t>& owners = owners_[Index(disk)];
  for (uint32_t s = 0; s < owners.size(); ++s) {
    const uint32_t id = owners[s];
    if (id == kNone) {
      ++counted.free;
    } else if (IsDuplicate(id, {disk, SlotIndex{s}})) {
      ++counted.cached;
      ++counted.duplicates;
    } else if (facts_[id].pins > 0) {
      ++counted.pinned;
    } else if (facts_[id].refs > 0) {
      ++counted.active;
    } else {
      ++counted.cached;
      ++priorities[shadow.node(id).priority.value()];
    }
  }
  SIM_CHECK(priorities == stats.cached_by_priority[Index(disk)],
            "the blocks on disk have other priorities than Stats()");
  SIM_CHECK(told.in_flight == disk_in_flight_ && told.free + disk_in_flight_ == counted.free &&
                told.cached == counted.cached && told.duplicates == counted.duplicates &&
                told.active == counted.active && told.pinned == counted.pinned,
            "the disk of window ", WindowName(stats.window), ": free ", told.free, ", cached ",
            told.cached, ", duplicates ", told.duplicates, ", active ", told.active, ", pinned ",
            told.pinned, ", in flight ", told.in_flight, "; counted: free ", counted.free,
            " with those in flight, cached ", counted.cached, ", duplicates ", counted.duplicates,
            ", active ", counted.active, ", pinned ", counted.pinned, ", in flight ",
            disk_in_flight_);
}

// Staging slots count nowhere.
Ledger::TierCount Ledger::CountTier(Tier tier, const Memory& memory, const Shadow& shadow) const {
  TierCount count;
  TierOccupancy& counted = count.occupancy;
  for (uint32_t s = 0; s < config_->plain_slots_in(window_index_, tier); ++s) {
    const SlotRef slot{tier, SlotIndex{s}};
    if (!reserved_.empty() && IsReserved(slot)) {
      ++count.free_in_flight;
      continue;
    }
    const bool copying = memory.Touched(window_index_, slot);
    const uint32_t id = owner(slot);
    if (id == kNone) {
      ++(copying ? count.free_in_flight : counted.free);
      continue;
    }
    const BlockFacts& facts = facts_[id];
    if (IsDuplicate(id, slot)) {
      ++(copying ? counted.in_flight : counted.cached);
      if (!copying) ++counted.duplicates;
    } else if (copying || facts.deferred > 0) {
      ++counted.in_flight;
    } else if (facts.pins > 0) {
      ++counted.pinned;
    } else if (facts.refs > 0) {
      ++counted.active;
    } else {
      ++counted.cached;
      ++count.priorities[shadow.node(id).priority.value()];
    }
  }
  return count;
}

void Ledger::CheckTierStats(const WindowStats& stats, Tier tier, const TierCount& count,
                            Reset reset) const {
  const TierOccupancy& told = stats.tiers[Index(tier)];
  const TierOccupancy& counted = count.occupancy;
  const uint32_t free_in_flight = count.free_in_flight;
  SIM_CHECK(reset == Reset::kGoesOn || count.priorities == stats.cached_by_priority[Index(tier)],
            "the ", DefaultTierName(tier),
            " tier's cached blocks have other priorities than Stats()");
  // Cut-off blocks are free by the events, and cached by the core.
  const uint32_t cut_off = reset == Reset::kGoesOn ? told.cached - counted.cached : 0;
  const uint32_t told_free = told.free + cut_off;
  // Below the first tier, one of the slots without an owner is the spare, which is in no count.
  const bool spare = tier != kPrimaryTier && !owners_[Index(tier)].empty();
  const bool same_free =
      spare ? told_free + told.in_flight + 1 == counted.free + free_in_flight + counted.in_flight &&
                  told_free + 1 >= counted.free && told_free <= counted.free
            : told_free == counted.free && told.in_flight == counted.in_flight + free_in_flight;
  SIM_CHECK(reset == Reset::kGoesOn || told.duplicates == counted.duplicates, "the ",
            DefaultTierName(tier), " tier has ", told.duplicates,
            " duplicates; counted: ", counted.duplicates);
  SIM_CHECK(same_free && told.cached == counted.cached + cut_off && told.cached >= counted.cached &&
                told.active == counted.active && told.pinned == counted.pinned,
            "the ", DefaultTierName(tier), " tier of window ", WindowName(stats.window), ": free ",
            told.free, ", cached ", told.cached, ", active ", told.active, ", pinned ", told.pinned,
            ", in flight ", told.in_flight, "; counted: free ", counted.free, ", cached ",
            counted.cached, ", active ", counted.active, ", pinned ", counted.pinned,
            ", in flight ", counted.in_flight, " and ", free_in_flight, " without a block");
}

void Ledger::CheckStats(const WindowStats& stats, const Memory& memory, const Shadow& shadow,
                        Reset reset) const {
  const SimConfig::Window& window = config_->windows[window_index_];
  SIM_CHECK(stats.window == window.size, "Stats() of another window");
  for (const Tier tier : kTiers) {
    const TierOccupancy& told = stats.tiers[Index(tier)];
    SIM_CHECK(told.sum() == told.capacity && told.capacity == window.blocks_in(tier),
              "rule 5: the ", DefaultTierName(tier), " blocks of window ", WindowName(window.size),
              " add up to ", told.sum(), " of ", told.capacity);
    if (config_->IsOnDisk(tier)) {
      CheckDiskStats(stats, shadow, reset);
    } else {
      CheckTierStats(stats, tier, CountTier(tier, memory, shadow), reset);
    }
  }
}

}  // namespace pagoda::sim
