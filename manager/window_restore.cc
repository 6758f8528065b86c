// Blocks of an earlier run, and what a later one needs to find these.
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manager/window_block_manager.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {

// --- Taking back ---

absl::Status WindowBlockManager::CheckRecovered(absl::Span<const RecoveredBlock> blocks) const {
  std::array<std::vector<bool>, kNumTiers> taken;
  std::array<uint32_t, kNumTiers> counts = {};
  for (size_t t = 0; t < kNumTiers; ++t) taken[t].resize(store_.num_slots(static_cast<Tier>(t)));
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
    if (++counts[tier] > options_.blocks[tier]) return refuse("is one more than the tier holds");
    if (accounts_.any() && block.parent == RecoveredBlock::kRoot &&
        !block.name_space.tenant.empty() &&
        options_.tenants->OwnerOf(block.name_space) == kCommons) {
      return refuse("belongs to a tenant that is no more");
    }
  }
  return absl::OkStatus();
}

void WindowBlockManager::Restore(OperationScope& op, absl::Span<const RecoveredBlock> blocks) {
  std::array<std::vector<SlotIndex>, kNumTiers> claimed;
  for (const RecoveredBlock& block : blocks) {
    if (block.slot.slot != kNoSlot) {
      claimed[static_cast<size_t>(block.slot.tier)].push_back(block.slot.slot);
    }
  }
  if (has_secondary()) store_.ReleaseSlot({Tier::kSecondary, spare_});
  store_.ClaimSlots(Tier::kPrimary, claimed[kPrimary]);
  store_.ClaimSlots(Tier::kSecondary, claimed[kSecondary]);
  if (has_secondary()) spare_ = store_.TakeSlot(Tier::kSecondary);

  std::vector<BlockId> ids;
  std::vector<NodeRef> roots;
  ids.reserve(blocks.size());
  roots.reserve(blocks.size());
  for (const RecoveredBlock& block : blocks) {
    const bool is_root = block.parent == RecoveredBlock::kRoot;
    const NodeRef root = is_root ? tree_.AcquireRoot(block.name_space) : roots[block.parent];
    const NodeRef parent = is_root ? root : NodeRef::Block(ids[block.parent]);
    const bool hole = block.slot.slot == kNoSlot;
    const BlockId id = store_.TakeId(hole ? BlockState::kHole : BlockState::kCached);
    std::copy(block.tokens.begin(), block.tokens.end(), store_.tokens(id).begin());
    store_[id].token_count = static_cast<uint32_t>(block.tokens.size());
    store_[id].refs = 0;
    store_[id].tree = tree_bit();
    store_[id].set_priority(block.priority);
    store_.SetExtras(id, block.extras);
    const TenantId owner = options_.tenants->OwnerOf(tree_.key(root));
    accounts_.SetOwner(id, owner);
    if (hole) {
      ++holes_;
    } else {
      store_.GiveSlot(id, block.slot);
      CountUnheld(id, block.slot.tier, +1);
    }
    tree_.Insert(id, parent);
    ids.push_back(id);
    roots.push_back(root);
    if (is_root) tree_.ReleaseRoot(root);  // Its first child keeps it.
    if (hole) continue;
    tree_.MoveChild(id, PrefixTree::kNowhere, block.slot.tier);
    policy(block.slot.tier, id).Inserted(id, tree_.hash(id));
    RecordStored(op, id, root, store_.key(id));
    if (store_[id].followed) lives_.Released(id, op.now);
    if (services_.slot_changes != nullptr) services_.slot_changes->back().found = true;
  }
  for (size_t i = blocks.size(); i-- > 0;) {
    if (store_[ids[i]].state() != BlockState::kCached || !IsCandidate(ids[i])) continue;
    policy(blocks[i].slot.tier, ids[i]).Released(ids[i], store_[ids[i]].priority());
  }
}

void WindowBlockManager::HoldFree(OperationScope& op, std::deque<Drain>& drains) {
  const uint32_t free = store_.free_slots(Tier::kPrimary);
  CountAllocated(op, free);
  for (uint32_t i = 0; i < free; ++i) {
    const BlockId id = TakeBlock(op, BlockState::kPrivate);
    drains.push_back({.step = 0,
                      .window = static_cast<uint16_t>(options_.index),
                      .tenant = op.tenant,
                      .block = id});
    AddDrain(id);
  }
}

// --- Writing down ---

void WindowBlockManager::WriteContent(BlockId id) {
  const NodeRef parent = tree_.parent(id);
  const BlockKey key = store_.key(id);
  const SlotRef slot = store_.slot(id);
  SlotContent content{.block = store_.handle(id).ref(),
                      .tokens = {key.tokens.begin(), key.tokens.end()},
                      .extras = {key.extras.begin(), key.extras.end()},
                      .priority = store_[id].priority()};
  if (parent.is_root()) {
    content.name_space = tree_.key(parent);
  } else {
    content.parent = store_.handle(parent.block()).ref();
  }
  services_.slot_changes->push_back({.window_index = options_.index,
                                     .slot = slot,
                                     .ready = services_.copies->Arrival(options_.index, slot),
                                     .content = std::move(content)});
}

void WindowBlockManager::WriteNothing(SlotRef slot) {
  services_.slot_changes->push_back(
      {.window_index = options_.index, .slot = slot, .ready = {}, .content = std::nullopt});
}

}  // namespace pagoda
