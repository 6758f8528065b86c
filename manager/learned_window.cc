#include "manager/learned_window.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace pagoda {
namespace {

constexpr uint32_t kStepsAFirstTier = 128;
constexpr uint32_t kKeysATier = 8;
// Contents that every window remembers, as far as that is not more than eight times its slots.
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

// The blocks that all tiers hold together: most blocks in memory have a copy on disk too.
uint32_t CachedBlocks(const PolicyTiers& tiers) {
  uint32_t blocks = MemorySlots(tiers);
  for (const PolicyTier& tier : tiers) {
    if (tier.on_disk) blocks = std::max(blocks, tier.num_slots);
  }
  return blocks;
}

// The slots for which EvictedContent remembers as much as wanted.
uint32_t RememberedFor(uint32_t slots) {
  return std::max(slots, std::min(4 * slots, kLeastRemembered / kRememberedASlot));
}

ContentKind KindOf(const BlockFacts& block) {
  return block.content.origin() == ContentOrigin::kReply ? ContentKind::kReply
                                                         : ContentKind::kPrompt;
}

uint32_t OneMore(uint32_t uses) { return std::min(uses + 1, ReuseClass::kUses - 1); }

}  // namespace

LearnedWindow::LearnedWindow(const PolicyTiers& tiers)
    : accesses_a_step_(std::max(1u, FirstTier(tiers) / kStepsAFirstTier)),
      accesses_left_(accesses_a_step_),
      has_several_tiers_(std::count_if(tiers.begin(), tiers.end(),
                                       [](const PolicyTier& tier) { return tier.num_slots != 0; }) >
                         1),
      evicted_(RememberedFor(MemorySlots(tiers))),
      sample_(CachedBlocks(tiers)) {
  for (size_t t = 0; t < kMaxTiers; ++t) {
    const uint32_t slots = tiers[t].num_slots;
    if (slots == 0) continue;
    tiers_[t] = {.on_disk = tiers[t].on_disk,
                 .arena = std::make_unique<CandidateArena>(slots, 0),
                 .last_uses = BigArray<uint16_t>(slots),
                 .states = BigArray<State>(slots),
                 .key_shift = static_cast<uint32_t>(
                     std::bit_width(std::max(1u, slots / accesses_a_step_ / kKeysATier)) - 1)};
  }
}

void LearnedWindow::Came(size_t tier, const BlockFacts& block) {
  if (moving_.block == block.block && moving_.content == block.hash && moving_.tier != tier) {
    tiers_[tier].last_uses[block.slot.value()] = moving_.last_use;
    tiers_[tier].states[block.slot.value()] = moving_.state;
    tiers_[tier].states[block.slot.value()].moved = 1;
    moving_.block = kNoBlock;
    return;
  }
  EndMove();
  RememberAll();  // What arrives may have left just before.
  if (arrivals_.full()) SettleOne();
  evicted_.Prefetch(block.hash);
  arrivals_.Push({.tier = static_cast<uint8_t>(tier),
                  .uses = std::min<uint8_t>(block.uses, ReuseClass::kUses - 1),
                  .kind = KindOf(block),
                  .slot = block.slot,
                  .content = block.hash});
}

void LearnedWindow::SettleOne() {
  const Arrival arrival = arrivals_.Pop();
  uint32_t uses = arrival.uses;
  const std::optional<EvictedContent::Memory> memory = evicted_.Take(arrival.content);
  if (memory.has_value()) uses = std::max(uses, OneMore(memory->note));
  tiers_[arrival.tier].states[arrival.slot.value()] = {.is_new = 1};
  Use(arrival.tier, arrival.slot, arrival.content, ReuseClass::Of(uses, arrival.kind));
}

void LearnedWindow::SettleAll() {
  while (arrivals_.size != 0) SettleOne();
}

void LearnedWindow::RememberAll() {
  while (departures_.size != 0) {
    const Departure departure = departures_.Pop();
    evicted_.Remember(departure.content, departure.uses);
  }
}

void LearnedWindow::Remember(BlockHash content, uint32_t uses) {
  if (departures_.full()) {
    const Departure departure = departures_.Pop();
    evicted_.Remember(departure.content, departure.uses);
  }
  evicted_.Prefetch(content);
  departures_.Push({.content = content, .uses = uses});
}

void LearnedWindow::Recovered(size_t tier, const BlockFacts& block) {
  CameToDisk(tier, block);
  tiers_[tier].states[block.slot.value()].is_new = 1;
}

void LearnedWindow::CameToDisk(size_t tier, const BlockFacts& block) {
  const uint32_t uses = std::min<uint32_t>(block.uses, ReuseClass::kUses - 1);
  tiers_[tier].states[block.slot.value()] = {
      .reuse_class = static_cast<uint8_t>(ReuseClass::Of(uses, KindOf(block))),
      .moved = tiers_[tier].on_disk};
  tiers_[tier].last_uses[block.slot.value()] = static_cast<uint16_t>(step_);
}

void LearnedWindow::Inherit(size_t tier, const BlockFacts& block, SlotRef other) {
  Settle();
  TierTables& from = tiers_[static_cast<size_t>(other.tier)];
  State& state = from.states[other.slot.value()];
  const uint16_t last_use = from.last_uses[other.slot.value()];
  if (from.on_disk) {
    EndMove();
    moving_ = {.tier = static_cast<size_t>(other.tier),
               .block = block.block,
               .content = block.hash,
               .last_use = last_use,
               .state = state};
    state.moved = 0;
    return;
  }
  const bool fell = moving_.block == block.block && moving_.content == block.hash;
  if (fell) moving_.block = kNoBlock;
  tiers_[tier].states[block.slot.value()] = {.reuse_class = state.reuse_class, .moved = fell};
  tiers_[tier].last_uses[block.slot.value()] = last_use;
}

void LearnedWindow::LeftDisk(size_t tier, const BlockFacts& block) {
  const State state = tiers_[tier].states[block.slot.value()];
  if (state.moved) Remember(block.hash, ReuseClass::UsesOf(state.reuse_class));
}

void LearnedWindow::Matched(size_t tier, const BlockFacts& block) {
  Settle();
  State& state = tiers_[tier].states[block.slot.value()];
  state.is_new = 0;
  state.moved = 0;
  Use(tier, block.slot, block.hash,
      ReuseClass::Of(OneMore(ReuseClass::UsesOf(state.reuse_class)), KindOf(block)));
}

void LearnedWindow::Use(size_t tier, SlotIndex slot, BlockHash content, uint32_t reuse_class) {
  tiers_[tier].states[slot.value()].reuse_class = static_cast<uint8_t>(reuse_class);
  sample_.Accessed(content, reuse_class);
  if (--accesses_left_ == 0) NextStep();
  tiers_[tier].last_uses[slot.value()] = static_cast<uint16_t>(step_);
}

// Under full attention only a leaf is told of its release. If no request has used it since it came,
// it is the end of the request that published it. In a sliding window every block is told, so there
// all new blocks are of this kind.
void LearnedWindow::Released(size_t tier, const BlockFacts& block) {
  Settle();
  State& state = tiers_[tier].states[block.slot.value()];
  const bool moved = state.moved;
  state.moved = 0;
  if (moved) return;
  tiers_[tier].last_uses[block.slot.value()] = static_cast<uint16_t>(step_);
  if (!state.is_new) return;
  state.is_new = 0;
  state.reuse_class = static_cast<uint8_t>(
      ReuseClass::Of(ReuseClass::UsesOf(state.reuse_class), ContentKind::kLast));
  sample_.Reclassify(block.hash, state.reuse_class);
}

void LearnedWindow::Left(size_t tier, const BlockFacts& block) {
  Settle();
  EndMove();
  const State state = tiers_[tier].states[block.slot.value()];
  if (!has_several_tiers_) {
    Remember(block.hash, ReuseClass::UsesOf(state.reuse_class));
    return;
  }
  moving_ = {.tier = tier,
             .block = block.block,
             .content = block.hash,
             .last_use = tiers_[tier].last_uses[block.slot.value()],
             .state = state};
}

void LearnedWindow::EndMove() {
  if (moving_.block == kNoBlock) return;
  Remember(moving_.content, ReuseClass::UsesOf(moving_.state.reuse_class));
  moving_.block = kNoBlock;
}

// Looks at a few slots of each tier, so that each is seen before its last use looks recent again.
void LearnedWindow::NextStep() {
  ++step_;
  accesses_left_ = accesses_a_step_;
  for (TierTables& tier : tiers_) {
    const auto slots = static_cast<uint32_t>(tier.last_uses.size());
    for (uint32_t i = 0; i < slots / (kOldest / 2) + 1 && slots != 0; ++i) {
      uint16_t& last_use = tier.last_uses[tier.next_swept];
      if (static_cast<uint16_t>(step_ - last_use) > kOldest) {
        last_use = static_cast<uint16_t>(step_ - kOldest);
      }
      tier.next_swept = tier.next_swept + 1 == slots ? 0 : tier.next_swept + 1;
    }
  }
}

}  // namespace pagoda
