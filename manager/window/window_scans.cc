#include "manager/window/window_scans.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "events/client_key.h"

namespace pagoda {
namespace {

// Whether the block is outside the tree and events tell of it.
bool IsTold(const Block& block, LifecycleEvents lifecycle) {
  switch (lifecycle) {
    case LifecycleEvents::kOff:
      return false;
    case LifecycleEvents::kRaw:
      return block.state() == BlockState::kRaw;
    case LifecycleEvents::kAll:
      return block.allocated_outside_tree();
  }
  return false;
}

}  // namespace

// --- Late subscribers ---

BlockId WindowScans::ReadSnapshot(BlockId begin, size_t max_ids, size_t max_tokens,
                                  LifecycleEvents lifecycle, absl::Time now,
                                  std::vector<Event>* out) const {
  const auto add = [&](TenantId tenant, auto what) {
    out->push_back({.time = now, .window = window(), .tenant = tenant, .what = std::move(what)});
  };
  if (begin.value() == 0) {
    const std::vector<uint32_t> blocks = options_.BlocksPerTier();
    add(kDefaultTenant, CreatedEvent{.blocks_per_tier = {blocks.begin(), blocks.end()}});
  }
  const auto end = static_cast<uint32_t>(
      std::min<size_t>(store_.num_ids(), begin.value() + std::max<size_t>(max_ids, 1)));
  size_t tokens = 0;
  uint32_t i = begin.value();
  for (; i < end && tokens < std::max<size_t>(max_tokens, 1); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    if (IsTold(block, lifecycle)) {
      const TenantId owner = accounts().owner(id);
      auto* last = out->empty() || out->back().tenant != owner
                       ? nullptr
                       : std::get_if<CreatedEvent>(&out->back().what);
      if (last == nullptr || last->blocks.empty()) {
        add(owner, CreatedEvent{.blocks = {id}});
      } else {
        last->blocks.push_back(id);
      }
    }
    if (block.state() != BlockState::kCached || tree_.IsCutOff(id)) continue;
    const NodeRef parent = tree_.parent(id);
    const BlockId parent_id = parent.is_root() ? kNoBlock : parent.block();
    auto* run = out->empty() ? nullptr : std::get_if<StoredEvent>(&out->back().what);
    const BlockKey key = store_.key(id);
    // A child of the previous block joins its event, unless the event would have to hold extras.
    if (run == nullptr || run->blocks.back().id != parent_id || key.has_extras() ||
        !run->extras.empty()) {
      StoredEvent stored{.parent = parent_id,
                         .first_token = tree_.end_token(parent),
                         .name_space = tree_.key(tree_.RootOf(id))};
      if (parent_id != kNoBlock) stored.parent_hash = tree_.hash(parent);
      stored.extras.assign(key.extras.begin(), key.extras.end());
      add(accounts().owner(id), std::move(stored));
      run = &std::get<StoredEvent>(out->back().what);
    }
    run->blocks.push_back({.id = id,
                           .hash = tree_.hash(id),
                           .token_count = block.token_count,
                           .tier = block.tier(),
                           .priority = block.priority(),
                           .lower = residency_.slots().LowerTiers(id)});
    run->tokens.insert(run->tokens.end(), key.tokens.begin(), key.tokens.end());
    tokens += key.tokens.size();
  }
  return BlockId{i};
}

// --- Operators ---

void WindowScans::PrefixNodes(uint32_t from, absl::Span<PrefixNode> nodes) const {
  const uint32_t tree = tree_.tree_bit();
  for (PrefixNode& node : nodes) {
    const BlockId id{from++};
    const Block& block = store_[id];
    node = {.generation = block.generation};
    // This is IsCutOff with its constant part outside the loop.
    if (!block.in_tree() || block.tree != tree) [[unlikely]] {
      continue;
    }
    const NodeRef parent = tree_.parent(id);
    node.parent = parent.is_root() ? PrefixNode::kAtRoot : parent.block().value();
    node.match_ends = tree_.match_ends(id);
  }
}

std::optional<LocatedBlock> WindowScans::Locate(BlockId id, TierSet tiers) const {
  if (id.value() >= store_.num_ids() || store_[id].state() != BlockState::kCached ||
      tree_.IsCutOff(id)) {
    return std::nullopt;
  }
  const SlotRef slot = residency_.copies().CompleteCopy(id, tiers);
  if (slot.slot == kNoSlot) return std::nullopt;
  return LocatedBlock{.generation = store_[id].generation, .hash = tree_.hash(id), .slot = slot};
}

std::optional<PrefixUse> WindowScans::Describe(const UsedPrefix& prefix) const {
  const auto lives = [&](const BlockRef& ref) {
    return store_[ref.id].generation == ref.generation && store_[ref.id].in_tree() &&
           !tree_.IsCutOff(ref.id);
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

// --- Tests ---

std::vector<TreeEntry> WindowScans::DumpTree() const {
  std::vector<TreeEntry> entries;
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    if (block.state() != BlockState::kCached || tree_.IsCutOff(id)) continue;
    const NodeRef parent = tree_.parent(id);
    const BlockKey key = store_.key(id);
    entries.push_back({.id = id,
                       .hash = tree_.hash(id),
                       .parent = parent.is_root() ? kNoBlock : parent.block(),
                       .name_space = tree_.key(tree_.RootOf(id)),
                       .tokens = {key.tokens.begin(), key.tokens.end()},
                       .extras = {key.extras.begin(), key.extras.end()},
                       .tier = block.tier(),
                       .priority = block.priority(),
                       .lower = residency_.slots().LowerTiers(id)});
  }
  return entries;
}

std::vector<BlockId> WindowScans::DumpAllocated() const {
  std::vector<BlockId> allocated;
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    if (store_[BlockId{i}].allocated_outside_tree()) allocated.push_back(BlockId{i});
  }
  return allocated;
}

}  // namespace pagoda
