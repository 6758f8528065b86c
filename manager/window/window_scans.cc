// Reads of a window from outside: how often its prefixes were used, and where its blocks lie.
#include "events/client_key.h"
#include "manager/window/window_block_manager.h"

namespace pagoda {

void WindowBlockManager::PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const {
  const uint32_t tree = tree_.tree_bit();
  for (PrefixNode& node : nodes) {
    const BlockId id{from++};
    const Block& block = store_[id];
    node = {.generation = block.generation};
    // As IsCutOff, with the constant part outside the loop.
    if (!block.in_tree() || block.tree != tree) [[unlikely]] {
      continue;
    }
    const NodeRef parent = tree_.parent(id);
    node.parent = parent.is_root() ? PrefixNode::kAtRoot : parent.block().value();
    node.match_ends = tree_.match_ends(id);
  }
}

std::optional<LocatedBlock> WindowBlockManager::Locate(BlockId id, TierSet tiers) const {
  if (id.value() >= store_.num_ids() || store_[id].state() != BlockState::kCached || IsCutOff(id)) {
    return std::nullopt;
  }
  const SlotRef slot = residency_.copies().CompleteCopy(id, tiers);
  if (slot.slot == kNoSlot) return std::nullopt;
  return LocatedBlock{.generation = store_[id].generation, .hash = tree_.hash(id), .slot = slot};
}

std::optional<PrefixUse> WindowBlockManager::Describe(const UsedPrefix& prefix) const {
  const auto lives = [&](const BlockRef& ref) {
    return store_[ref.id].generation == ref.generation && store_[ref.id].in_tree() &&
           !IsCutOff(ref.id);
  };
  if (!lives(prefix.first) || !lives(prefix.last)) return std::nullopt;
  const NodeRef root = tree_.parent(prefix.first.id);
  const BlockId last = prefix.last.id;
  const Block& block = store_[last];
  if (!root.is_root() || block.state() != BlockState::kCached) return std::nullopt;
  PrefixUse use{.name_space = tree_.key(root),
                .tenant = accounts().owner(last),
                .hash = tree_.hash(last),
                .tokens = prefix.blocks * tokens_per_block().value(),
                .first_tokens = {},
                .first_key = {},
                .tier = block.tier(),
                .priority = block.priority(),
                .holders = block.refs,
                .pinned = block.pinned != 0,
                .hits = prefix.hits,
                .saved_tokens = 0};
  use.saved_tokens = use.hits * use.tokens;
  const BlockKey first = store_.key(prefix.first.id);
  if (first.keyed) {
    use.first_key = ClientKeyBytes(first);
    return use;
  }
  const absl::Span<const TokenId> tokens = first.tokens;
  use.first_tokens.assign(tokens.begin(),
                          tokens.begin() + std::min(tokens.size(), PrefixUse::kShownTokens));
  return use;
}

}  // namespace pagoda
