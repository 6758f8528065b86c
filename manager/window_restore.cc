// Blocks of an earlier run are taken back.
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manager/window_block_manager.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {

absl::Status WindowBlockManager::CheckRecovered(absl::Span<const RecoveredBlock> blocks) const {
  std::array<std::vector<bool>, kMaxTiers> taken;
  std::array<uint32_t, kMaxTiers> counts = {};
  for (size_t t = 0; t < kMaxTiers; ++t)
    taken[t].resize(residency_.num_slots(static_cast<Tier>(t)));
  uint32_t holes = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const RecoveredBlock& block = blocks[i];
    const auto refuse = [&](std::string_view what) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("recovered block ", i, " of window ", WindowName(window()), " ",
                                    std::string(what)));
    };
    const size_t size = block.tokens.size();
    if (size == 0 || size > tokens_per_block().value() ||
        (!block.extras.empty() && block.extras.size() != size)) {
      return refuse(absl::StrCat("has ", size, " tokens and ", block.extras.size(), " extras"));
    }
    if (block.parent != RecoveredBlock::kRoot) {
      if (block.parent >= i) return refuse("comes before its parent");
      const RecoveredBlock& parent = blocks[block.parent];
      if (parent.tokens.size() != tokens_per_block().value()) return refuse("hangs under a tail");
      if (!sliding() && parent.slot.tier > block.slot.tier) return refuse("is above its parent");
    }
    if (block.slot.slot == kNoSlot) {
      if (!sliding() || ++holes > options_.max_holes) return refuse("is a hole too many");
      continue;
    }
    const auto tier = static_cast<size_t>(block.slot.tier);
    if (block.slot.slot.value() >= taken[tier].size() || taken[tier][block.slot.slot.value()]) {
      return refuse("lies in no slot of its own");
    }
    taken[tier][block.slot.slot.value()] = true;
    if (++counts[tier] > options_.tiers[tier].blocks)
      return refuse("is one more than the tier holds");
    if (accounts().any() && block.parent == RecoveredBlock::kRoot &&
        !block.name_space.tenant.empty() &&
        options_.tenants->OwnerOf(block.name_space) == kCommons) {
      return refuse("belongs to a tenant that is no more");
    }
  }
  return absl::OkStatus();
}

void WindowBlockManager::Restore(OperationScope& op, absl::Span<const RecoveredBlock> blocks) {
  std::array<std::vector<SlotIndex>, kMaxTiers> claimed;
  for (const RecoveredBlock& block : blocks) {
    if (block.slot.slot != kNoSlot) {
      claimed[static_cast<size_t>(block.slot.tier)].push_back(block.slot.slot);
    }
  }
  residency_.Claim(claimed);

  std::vector<BlockId> ids;
  std::vector<NodeRef> roots;
  std::vector<uint32_t> depths;  // In blocks.
  ids.reserve(blocks.size());
  roots.reserve(blocks.size());
  depths.reserve(blocks.size());
  for (const RecoveredBlock& block : blocks) {
    const bool is_root = block.parent == RecoveredBlock::kRoot;
    const NodeRef root = is_root ? tree_.AcquireRoot(block.name_space) : roots[block.parent];
    const NodeRef parent = is_root ? root : NodeRef::Block(ids[block.parent]);
    const bool hole = block.slot.slot == kNoSlot;
    const BlockId id = store_.TakeId(hole ? BlockState::kHole : BlockState::kCached);
    std::copy(block.tokens.begin(), block.tokens.end(), store_.tokens(id).begin());
    store_[id].token_count = static_cast<uint32_t>(block.tokens.size());
    store_[id].refs = 0;
    store_[id].tree = tree_.tree_bit();
    store_[id].set_priority(block.priority);
    store_.SetExtras(id, block.extras);
    if (hole) ++holes_;
    depths.push_back(is_root ? 1 : depths[block.parent] + 1);
    tree_.Insert(id, parent, store_.key(id),
                 ContentFacts(depths.back(), 0, ContentOrigin::kPrompt));
    residency_.EnterRecovered(op, id, block.slot, options_.tenants->OwnerOf(tree_.key(root)));
    ids.push_back(id);
    roots.push_back(root);
    if (is_root) tree_.ReleaseRoot(root);  // Its first child keeps it.
    if (hole) continue;
    RecordStored(op, id, root, store_.key(id));
    if (store_[id].followed) lives_.Released(id, op.now);
    if (services_.slot_changes != nullptr) services_.slot_changes->back().found = true;
  }
  for (size_t i = ids.size(); i-- > 0;) residency_.OfferRecovered(op, ids[i]);
}

void WindowBlockManager::HoldFree(OperationScope& op, std::deque<Drain>& drains) {
  const uint32_t free = residency_.free_slots(Tier::kPrimary);
  CountAllocated(op, free);
  for (uint32_t i = 0; i < free; ++i) {
    const BlockId id = residency_.Take(op, BlockState::kPrivate);
    drains.push_back({.step = 0,
                      .window = static_cast<uint16_t>(options_.index),
                      .tenant = op.tenant,
                      .block = id});
    residency_.AddDrain(id);
  }
}

}  // namespace pagoda
