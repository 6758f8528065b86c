// The part of WindowBlockManager that reads the state for late subscribers.
#include <algorithm>

#include "manager/window/window_block_manager.h"

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

BlockId WindowBlockManager::ReadSnapshot(BlockId begin, size_t max_ids, size_t max_tokens,
                                         LifecycleEvents lifecycle, absl::Time now,
                                         std::vector<Event>* out) const {
  const auto add = [&](TenantId tenant, auto what) {
    out->push_back({.time = now, .window = window(), .tenant = tenant, .what = std::move(what)});
  };
  if (begin.value() == 0) {
    const std::vector<uint32_t> blocks = BlocksPerTier(options_);
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
    if (block.state() != BlockState::kCached || IsCutOff(id)) continue;
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

}  // namespace pagoda
