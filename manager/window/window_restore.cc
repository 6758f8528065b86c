#include "manager/window/window_restore.h"

#include <array>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "pools/sizing.h"

namespace pagoda {

WindowRestore::WindowRestore(const WindowFloor& floor, WindowCounts& counts, CachedBlocks& cached)
    : WindowPart(floor), counts_(counts), cached_(cached) {}

absl::Status WindowRestore::CheckRecovered(absl::Span<const RecoveredBlock> blocks) const {
  std::array<std::vector<bool>, kMaxTiers> taken;
  std::array<uint32_t, kMaxTiers> counts = {};
  for (size_t t = 0; t < kMaxTiers; ++t) taken[t].resize(residency_.slots().num_slots(Tier(t)));
  uint32_t holes = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const RecoveredBlock& block = blocks[i];
    const auto refuse = [&](std::string_view what) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("recovered block ", i, " of window ", WindowName(window()), " ",
                                    std::string(what)));
    };
    if (!block.IsContent(tokens_per_block().value())) {
      return refuse(absl::StrCat("has ", block.tokens.size(),
                                 block.keyed ? " words of a key and " : " tokens and ",
                                 block.extras.size(), " extras"));
    }
    if (block.parent != RecoveredBlock::kRoot) {
      if (block.parent >= i) return refuse("comes before its parent");
      const RecoveredBlock& parent = blocks[block.parent];
      if (!parent.IsWhole(tokens_per_block().value())) return refuse("has a tail as its parent");
      if (parent.keyed != block.keyed)
        return refuse("is keyed and its parent is not, or the reverse");
      if (!sliding() && parent.slot.tier > block.slot.tier)
        return refuse("lies in a nearer tier than its parent");
    }
    if (block.parent == RecoveredBlock::kRoot && block.name_space.keyed != block.keyed) {
      return refuse("is keyed and its namespace is not, or the reverse");
    }
    if (block.slot.slot == kNoSlot) {
      if (!sliding() || ++holes > options_.max_holes) return refuse("is one hole too many");
      continue;
    }
    const size_t tier = block.slot.tier.value();
    if (block.slot.slot.value() >= taken[tier].size() || taken[tier][block.slot.slot.value()]) {
      return refuse("has a slot that does not exist or is taken");
    }
    taken[tier][block.slot.slot.value()] = true;
    if (++counts[tier] > options_.tiers[tier].blocks) return refuse("exceeds the tier's capacity");
    if (accounts().any() && block.parent == RecoveredBlock::kRoot &&
        !block.name_space.tenant.empty() &&
        options_.tenants->OwnerOf(block.name_space) == kDefaultTenant) {
      return refuse("belongs to a tenant that no longer exists");
    }
  }
  return absl::OkStatus();
}

void WindowRestore::Restore(OperationScope& op, absl::Span<const RecoveredBlock> blocks) {
  std::array<std::vector<SlotIndex>, kMaxTiers> claimed;
  for (const RecoveredBlock& block : blocks) {
    if (block.slot.slot != kNoSlot) {
      claimed[block.slot.tier.value()].push_back(block.slot.slot);
    }
  }
  residency_.slots().Claim(claimed);

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
    store_.SetContent(id, block.key());
    store_[id].refs = 0;
    store_[id].tree = tree_.tree_bit();
    store_[id].set_priority(block.priority);
    if (hole) cached_.AddHole();
    depths.push_back(is_root ? 1 : depths[block.parent] + 1);
    tree_.Insert(id, parent, store_.key(id),
                 ContentFacts(depths.back(), 0, ContentOrigin::kPrompt));
    residency_.EnterRecovered(op, id, block.slot, options_.tenants->OwnerOf(tree_.key(root)));
    ids.push_back(id);
    roots.push_back(root);
    if (is_root) tree_.ReleaseRoot(root);  // The first child keeps the root.
    if (hole) continue;
    cached_.RecordStored(op, id, root, store_.key(id));
    counts_.Recovered(op, id);
    if (services_.slot_changes != nullptr) services_.slot_changes->back().found = true;
  }
  for (size_t i = ids.size(); i-- > 0;) {
    residency_.OfferRecovered(op, ids[i]);
    counts_.Found(ids[i]);
  }
}

absl::StatusOr<uint64_t> WindowRestore::RestoreDisk(OperationScope& op,
                                                    absl::Span<const RecoveredBlock> blocks) {
  const uint32_t num_slots = residency_.slots().num_slots(Tier(residency_.slots().disk_tier()));
  std::vector<bool> taken(num_slots);
  std::vector<SlotIndex> claimed;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const RecoveredBlock& block = blocks[i];
    const SlotIndex slot = block.slot.slot;
    const bool is_first = block.parent == RecoveredBlock::kRoot;
    const bool fits = slot.value() < num_slots && !taken[slot.value()] &&
                      block.IsContent(tokens_per_block().value()) &&
                      (is_first ? block.name_space.keyed == block.keyed
                                : block.parent < i && blocks[block.parent].keyed == block.keyed);
    if (!fits) {
      return MakeError(Reason::kInvalidArgument,
                       absl::StrCat("block ", i, " of window ", WindowName(window()),
                                    " that was found on disk does not fit the cache"));
    }
    taken[slot.value()] = true;
    claimed.push_back(slot);
  }
  residency_.slots().ClaimOnDisk(claimed);

  uint64_t copies = 0;
  std::vector<BlockId> ids(blocks.size(), kNoBlock);
  std::vector<BlockRef> entered;
  std::vector<uint32_t> depths(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const RecoveredBlock& block = blocks[i];
    const bool is_first = block.parent == RecoveredBlock::kRoot;
    const BlockId above = is_first ? kNoBlock : ids[block.parent];
    depths[i] = is_first ? 1 : depths[block.parent] + 1;
    const bool has_place =
        is_first || (above != kNoBlock && store_[above].token_count == tokens_per_block().value());
    if (!has_place) {
      residency_.file_slots().DropRecovered(block.slot.slot);
      continue;
    }
    const NodeRef root = is_first ? tree_.AcquireRoot(block.name_space) : tree_.RootOf(above);
    const NodeRef parent = is_first ? root : NodeRef::Block(above);
    ids[i] = RestoreOnDisk(op, block, root, parent, depths[i], &entered);
    if (is_first) tree_.ReleaseRoot(root);
    if (ids[i] == kNoBlock) {
      residency_.file_slots().DropRecovered(block.slot.slot);
    } else {
      ++copies;
    }
  }
  for (size_t i = entered.size(); i-- > 0;) {
    const BlockRef block = entered[i];
    if (store_[block.id].generation != block.generation) continue;
    residency_.OfferRecovered(op, block.id);
    counts_.Found(block.id);
  }
  return copies;
}

// The block that has the copy; kNoBlock if none has it.
BlockId WindowRestore::RestoreOnDisk(OperationScope& op, const RecoveredBlock& block, NodeRef root,
                                     NodeRef parent, uint32_t depth,
                                     std::vector<BlockRef>* entered) {
  const BlockKey key = block.key();
  const BlockId there = tree_.FindChild(parent, key);
  if (there != kNoBlock) {
    if (store_[there].state() != BlockState::kCached || residency_.slots().HasCopyOnDisk(there)) {
      return kNoBlock;
    }
    residency_.disk_copies().AttachRecovered(op, there, block.slot.slot);
    return there;
  }
  // A tail is no use beside a block that begins with it.
  const PrefixTree::Closest closest = tree_.FindClosest(parent, key);
  const bool is_beginning = closest.id != kNoBlock && closest.tokens == key.tokens.size();
  if (is_beginning || store_.free_ids() == 0) return kNoBlock;
  // A copy that had a nearer one was charged to no tenant, and the nearer one is gone now.
  const TenantId owner = options_.tenants->OwnerOf(tree_.key(root));
  if (accounts().AtQuota(Tier(residency_.slots().disk_tier()), owner)) return kNoBlock;
  const BlockId id = store_.TakeId(BlockState::kCached);
  store_.SetContent(id, key);
  store_[id].refs = 0;
  store_[id].tree = tree_.tree_bit();
  store_[id].set_priority(block.priority);
  tree_.Insert(id, parent, store_.key(id), ContentFacts(depth, 0, ContentOrigin::kPrompt));
  residency_.EnterOnDisk(op, id, block.slot.slot, owner);
  cached_.RecordStored(op, id, root, store_.key(id));
  counts_.Recovered(op, id);
  entered->push_back(store_.handle(id).ref());
  const CachedBlocks::Prefixes prefixes = cached_.EvictablePrefixes(parent, store_.key(id));
  if (!prefixes.empty()) cached_.RemovePrefixes(op, prefixes);
  return id;
}

}  // namespace pagoda
