#include "manager/block_store.h"

#include <algorithm>
#include <utility>

#include "pools/check.h"

namespace pagoda {
namespace {

constexpr uint32_t kMostSlots = 0x7FFF'FFFE;
constexpr uint32_t kMostTokensPerBlock = 1024;

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
    slots_[tier] = BigArray<uint32_t>(slots);
    for (uint32_t i = 0; i < slots; ++i) slots_[tier][i] = kFreeBit | (i + 1);
  }
  PAGODA_CHECK(ids <= kMostSlots, "a window has fewer than 2^31 block ids");
  free_ids_ = static_cast<uint32_t>(ids);
  first_free_id_ = 0;
  blocks_ = BigArray<Block>(ids);
  for (uint32_t i = 0; i < free_ids_; ++i) blocks_[i].slot = SlotIndex{i + 1};
  tokens_ = BigArray<TokenId>(ids * tokens_per_block_);
}

void BlockStore::ClaimSlots(Tier tier, absl::Span<const SlotIndex> claimed) {
  BigArray<uint32_t>& slots = slots_[Index(tier)];
  PAGODA_CHECK(free_slots(tier) == slots.size(), "slots are claimed before any is taken");
  for (const SlotIndex slot : claimed) slots[slot.value()] = kTaken;
  uint32_t next = static_cast<uint32_t>(slots.size());
  free_slots_[Index(tier)] = 0;
  for (uint32_t i = next; i-- > 0;) {
    if (slots[i] == kTaken) continue;
    slots[i] = kFreeBit | next;
    next = i;
    ++free_slots_[Index(tier)];
  }
  first_free_slot_[Index(tier)] = next;
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
