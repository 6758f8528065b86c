#include "manager/policy/learned_window.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace pagoda {
namespace {

constexpr uint32_t kStepsAFirstTier = 128;
constexpr uint32_t kKeysATier = 8;
// Contents that every window remembers, as far as that is not more than four times its slots.
constexpr uint32_t kLeastRemembered = 128 * 1024;
constexpr uint32_t kRememberedASlot = 2;  // By EvictedContent.
constexpr uint16_t kOldest = 1 << 15;

uint32_t FirstTier(const PolicyTiers& tiers) {
  const auto first = std::find_if(tiers.begin(), tiers.end(),
                                  [](const PolicyTier& tier) { return tier.num_slots != 0; });
  return first == tiers.end() ? 1 : first->num_slots;
}

uint32_t MemorySlots(const PolicyTiers& tiers) {
  uint32_t slots = 0;
  for (const PolicyTier& tier : tiers) slots += tier.on_disk ? 0 : tier.num_slots;
  return slots;
}

// The blocks that the tier and those above hold together. Most blocks in memory have a copy on disk
// too.
uint32_t BlocksDownTo(const PolicyTiers& tiers, size_t tier) {
  uint32_t in_memory = 0, on_disk = 0;
  for (size_t t = 0; t <= tier; ++t) {
    (tiers[t].on_disk ? on_disk : in_memory) += tiers[t].num_slots;
  }
  return std::max(in_memory, on_disk);
}

// The slots for which EvictedContent remembers as much as wanted.
uint32_t RememberedFor(uint32_t slots) {
  return std::max(slots, std::min(2 * slots, kLeastRemembered / kRememberedASlot));
}

uint32_t OneMore(uint32_t uses) { return std::min(uses + 1, ReuseClass::kUses - 1); }

}  // namespace

LearnedWindow::LearnedWindow(const PolicyTiers& tiers)
    : accesses_a_step_(std::max(1u, FirstTier(tiers) / kStepsAFirstTier)),
      accesses_left_(accesses_a_step_),
      has_several_tiers_(std::count_if(tiers.begin(), tiers.end(),
                                       [](const PolicyTier& tier) { return tier.num_slots != 0; }) >
                         1),
      evicted_(RememberedFor(MemorySlots(tiers))) {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const uint32_t slots = tiers[t].num_slots;
    if (slots == 0) continue;
    samples_.push_back(
        std::make_unique<ReuseSample>(BlocksDownTo(tiers, t), tiers[t].most_sampled));
    sample_rate_ = std::max(sample_rate_, samples_.back()->rate());
    tiers_[t] = {.on_disk = tiers[t].on_disk,
                 .sample = samples_.back().get(),
                 .arena = std::make_unique<CandidateArena>(slots, 0),
                 .known = BigArray<Known>(slots),
                 .key_shift = static_cast<uint32_t>(
                     std::bit_width(std::max(1u, slots / accesses_a_step_ / kKeysATier)) - 1)};
  }
}

bool LearnedWindow::CameFromAnotherTier(size_t tier, const BlockFacts& block) {
  const bool moves =
      moving_.block == block.block && moving_.content == block.hash && moving_.tier != tier;
  if (!moves) {
    EndMove();
    return false;
  }
  Known& known = tiers_[tier].known[block.slot.value()];
  known = moving_.known;
  known.moved = 1;
  moving_.block = kNoBlock;
  return true;
}

inline void LearnedWindow::Access(BlockHash content, uint32_t reuse_class) {
  ++accesses_to_tell_;
  if (ReuseSample::IsPicked(content, sample_rate_)) [[unlikely]] {
    for (const auto& sample : samples_) {
      sample->Skip(accesses_to_tell_ - 1);
      sample->Accessed(content, reuse_class);
    }
    accesses_to_tell_ = 0;
  }
  if (--accesses_left_ == 0) NextStep();
}

void LearnedWindow::EndArrivals(uint32_t count) {
  arrivals_.Pop(count, [this](const Arrival& arrival) {
    uint32_t uses = arrival.uses;
    const std::optional<uint32_t> uses_before = evicted_.Take(arrival.content);
    if (uses_before.has_value()) uses = std::max(uses, OneMore(*uses_before));
    const uint32_t reuse_class = ReuseClass::Of(uses, arrival.kind);
    Access(arrival.content, reuse_class);
    *arrival.known = {.last_use = static_cast<uint16_t>(step_),
                      .reuse_class = static_cast<uint8_t>(reuse_class),
                      .is_new = 1};
  });
}

void LearnedWindow::EndDepartures(uint32_t count) {
  departures_.Pop(count, [this](const Departure& departure) {
    evicted_.Remember(departure.content, departure.uses);
  });
}

void LearnedWindow::Recovered(size_t tier, const BlockFacts& block) {
  CameToDisk(tier, block);
  tiers_[tier].known[block.slot.value()].is_new = 1;
}

void LearnedWindow::CameToDisk(size_t tier, const BlockFacts& block) {
  tiers_[tier].known[block.slot.value()] = {
      .last_use = static_cast<uint16_t>(step_),
      .reuse_class = static_cast<uint8_t>(ReuseClass::Of(block.uses, KindOf(block))),
      .moved = tiers_[tier].on_disk};
}

void LearnedWindow::Inherit(size_t tier, const BlockFacts& block, SlotRef other) {
  Settle();
  TierTables& from = tiers_[other.tier.value()];
  Known& known = from.known[other.slot.value()];
  if (from.on_disk) {
    EndMove();
    moving_ = {
        .tier = other.tier.value(), .block = block.block, .content = block.hash, .known = known};
    known.moved = 0;
    return;
  }
  const bool fell = moving_.block == block.block && moving_.content == block.hash;
  if (fell) moving_.block = kNoBlock;
  tiers_[tier].known[block.slot.value()] = {
      .last_use = known.last_use, .reuse_class = known.reuse_class, .moved = fell};
}

void LearnedWindow::LeftDisk(size_t tier, const BlockFacts& block) {
  const Known known = tiers_[tier].known[block.slot.value()];
  if (known.moved) Remember(block.hash, ReuseClass::UsesOf(known.reuse_class));
}

void LearnedWindow::Matched(size_t tier, const BlockFacts& block) {
  Settle();
  Known& known = tiers_[tier].known[block.slot.value()];
  known.is_new = 0;
  known.moved = 0;
  known.reuse_class = static_cast<uint8_t>(
      ReuseClass::Of(OneMore(ReuseClass::UsesOf(known.reuse_class)), KindOf(block)));
  Access(block.hash, known.reuse_class);
  known.last_use = static_cast<uint16_t>(step_);
}

// Under full attention only a leaf is told of its release. If no request has used it since it came,
// it is the end of the request that published it. In a sliding window every block is told, so there
// all new blocks are of this kind.
void LearnedWindow::Released(size_t tier, const BlockFacts& block) {
  Settle();
  Known& known = tiers_[tier].known[block.slot.value()];
  const bool moved = known.moved;
  known.moved = 0;
  if (moved) return;
  const uint64_t held = AgeOf(tier, block.slot) * accesses_a_step_;
  known.last_use = static_cast<uint16_t>(step_);
  if (!known.is_new) return;
  for (const auto& sample : samples_) sample->Ended(held);
  known.is_new = 0;
  known.reuse_class = static_cast<uint8_t>(
      ReuseClass::Of(ReuseClass::UsesOf(known.reuse_class), ContentKind::kLast));
  for (const auto& sample : samples_) sample->Reclassify(block.hash, known.reuse_class);
}

void LearnedWindow::Passed(size_t tier, SlotIndex slot) {
  tiers_[tier].known[slot.value()].last_use = static_cast<uint16_t>(step_ - kOldest);
}

// It may come to another tier in the next call.
void LearnedWindow::LeftOneOfSeveralTiers(size_t tier, const BlockFacts& block) {
  EndMove();
  moving_ = {.tier = tier,
             .block = block.block,
             .content = block.hash,
             .known = tiers_[tier].known[block.slot.value()]};
}

void LearnedWindow::EndMove() {
  if (moving_.block == kNoBlock) return;
  Remember(moving_.content, ReuseClass::UsesOf(moving_.known.reuse_class));
  moving_.block = kNoBlock;
}

std::vector<ReuseTable> LearnedWindow::Learned() const {
  std::vector<ReuseTable> tables;
  for (const auto& sample : samples_) tables.push_back(sample->Learned());
  return tables;
}

void LearnedWindow::Restore(absl::Span<const ReuseTable> tables) {
  for (size_t i = 0; i < samples_.size(); ++i) {
    ReuseTable table = tables[std::min(i, tables.size() - 1)];
    if (i >= tables.size()) {
      table.lead = table.variance = 0;
      table.trusts_index = false;
    }
    samples_[i]->Restore(table);
  }
}

// Looks at a few slots of each tier, so that each is seen before its last use looks recent again.
void LearnedWindow::NextStep() {
  ++step_;
  accesses_left_ = accesses_a_step_;
  for (TierTables& tier : tiers_) {
    const auto slots = static_cast<uint32_t>(tier.known.size());
    for (uint32_t i = 0; i < slots / (kOldest / 2) + 1 && slots != 0; ++i) {
      Known& known = tier.known[tier.next_swept];
      if (static_cast<uint16_t>(step_ - known.last_use) > kOldest) {
        known.last_use = static_cast<uint16_t>(step_ - kOldest);
      }
      tier.next_swept = tier.next_swept + 1 == slots ? 0 : tier.next_swept + 1;
    }
  }
}

}  // namespace pagoda
