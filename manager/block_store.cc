#include "manager/block_store.h"

#include <algorithm>
#include <utility>

#include "pools/check.h"

namespace pagoda {
namespace {

// An entry of slots_ without an owner: kFreeBit and the next free slot, or kTaken.
constexpr uint32_t kFreeBit = 0x8000'0000;
constexpr uint32_t kTaken = 0xFFFF'FFFF;  // Taken, not given yet.
constexpr uint32_t kMostSlots = 0x7FFF'FFFE;
constexpr uint32_t kMostTokensPerBlock = 1024;

static_assert(kNoBlock.value() == kTaken);

bool IsFree(uint32_t entry) { return (entry & kFreeBit) != 0 && entry != kTaken; }

}  // namespace

BlockStore::BlockStore(const Options& options)
    : tokens_per_block_(options.tokens_per_block.value()) {
  PAGODA_CHECK(tokens_per_block_ <= kMostTokensPerBlock, "a block has at most 1,024 tokens");
  uint64_t ids = options.spare_ids;
  for (size_t tier = 0; tier < kNumTiers; ++tier) {
    const uint32_t slots = options.slots[tier];
    ids += slots;
    first_free_slot_[tier] = 0;
    free_slots_[tier] = slots;
    slots_[tier].resize(slots);
    for (uint32_t i = 0; i < slots; ++i) slots_[tier][i] = kFreeBit | (i + 1);
  }
  PAGODA_CHECK(ids <= kMostSlots, "a window has fewer than 2^31 block ids");
  free_ids_ = static_cast<uint32_t>(ids);
  first_free_id_ = 0;
  blocks_.resize(ids);
  for (uint32_t i = 0; i < free_ids_; ++i) blocks_[i].slot = SlotIndex{i + 1};
  tokens_.resize(ids * tokens_per_block_);
}

BlockId BlockStore::TakeId(BlockState state) {
  PAGODA_CHECK(free_ids_ > 0 && state != BlockState::kFree, "a free block id can be taken");
  const BlockId id{first_free_id_};
  Block& block = (*this)[id];
  first_free_id_ = block.slot.value();
  --free_ids_;
  block = {.generation = Generation{block.generation.value() + 1}, .refs = 1};
  block.set_state(state);
  block.set_priority(kDefaultPriority);
  return id;
}

void BlockStore::ReleaseId(BlockId id) {
  Block& block = (*this)[id];
  PAGODA_CHECK(block.state() != BlockState::kFree && block.refs == 0,
               "rule 4: a block ends once, and after its last holder");
  PAGODA_CHECK(block.slot == kNoSlot || owner(slot(id)) != id,
               "rule 5: a block gives its slot back before it ends");
  if (block.extras) extras_.erase(id);
  block = {.generation = block.generation, .slot = SlotIndex{first_free_id_}};
  first_free_id_ = id.value();
  ++free_ids_;
}

SlotIndex BlockStore::TakeSlot(Tier tier) {
  PAGODA_CHECK(free_slots(tier) > 0, "a free slot can be taken");
  const uint32_t index = first_free_slot_[Index(tier)];
  uint32_t& entry = slots_[Index(tier)][index];
  first_free_slot_[Index(tier)] = entry & ~kFreeBit;
  --free_slots_[Index(tier)];
  entry = kTaken;
  return SlotIndex{index};
}

void BlockStore::ReleaseSlot(SlotRef slot) {
  uint32_t& entry = slots_[Index(slot.tier)][slot.slot.value()];
  PAGODA_CHECK(!IsFree(entry), "rule 5: a slot is released once");
  entry = kFreeBit | first_free_slot_[Index(slot.tier)];
  first_free_slot_[Index(slot.tier)] = slot.slot.value();
  ++free_slots_[Index(slot.tier)];
}

void BlockStore::GiveSlot(BlockId id, SlotRef slot) {
  Block& block = (*this)[id];
  uint32_t& entry = slots_[Index(slot.tier)][slot.slot.value()];
  PAGODA_CHECK(!IsFree(entry), "a slot is taken before it is given");
  if (block.slot != kNoSlot) {
    uint32_t& before = slots_[Index(block.tier())][block.slot.value()];
    if (before == id.value()) before = kTaken;
  }
  entry = id.value();
  block.slot = slot.slot;
  block.tier_value = static_cast<uint32_t>(slot.tier);
}

BlockId BlockStore::owner(SlotRef slot) const {
  const uint32_t entry = slots_[Index(slot.tier)][slot.slot.value()];
  return (entry & kFreeBit) != 0 ? kNoBlock : BlockId{entry};
}

void BlockStore::SetExtras(BlockId id, absl::Span<const TokenExtra> extras) {
  Block& block = (*this)[id];
  const bool any = std::any_of(extras.begin(), extras.end(),
                               [](const TokenExtra& extra) { return extra != TokenExtra{}; });
  if (any) {
    PAGODA_CHECK(extras.size() <= tokens_per_block_, "extras belong to the tokens of one block");
    extras_[id].assign(extras.begin(), extras.end());
  } else if (block.extras) {
    extras_.erase(id);
  }
  block.extras = any ? 1 : 0;
}

absl::Span<const TokenExtra> BlockStore::ExtrasOf(BlockId id) const { return extras_.at(id); }

}  // namespace pagoda
