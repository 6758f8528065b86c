#include "manager/window/window_block_manager.h"

#include <cstdint>
#include <utility>

#include "base/check.h"

namespace pagoda {

WindowBlockManager::WindowBlockManager(const Options& options, Policies policies,
                                       const CoreServices& services)
    : options_(options),
      services_(services),
      store_({.tokens_per_block = options.tokens_per_block, .num_ids = options.NumIds()}),
      tree_(&store_, options.num_tiers),
      residency_({.window = options.window,
                  .index = options.index,
                  .tiers = options.tiers,
                  .block_bytes = options.block_bytes,
                  .publish_uses = options.publish_min_uses.value_or(0),
                  .tenants = options.tenants},
                 std::move(policies), services, &store_, &tree_, &cached_),
      counts_(floor()),
      holds_(floor(), counts_),
      pins_(floor(), holds_),
      publishable_(floor()),
      cached_(floor(), counts_, holds_, pins_, publishable_),
      prefixes_(floor(), holds_, cached_),
      sequences_(floor(), counts_, holds_, cached_),
      raw_blocks_(floor(), counts_, holds_, pins_, cached_),
      restore_(floor(), counts_, cached_),
      scans_(floor()) {}

void WindowBlockManager::Expire(OperationScope& op) {
  holds_.ExpirePriorities(op);
  if (has_disk()) residency_.fetches().ExpireFetches(op);
}

WindowStats WindowBlockManager::Stats() const {
  WindowStats stats;
  stats.window = window();
  counts_.AddStats(&stats);
  stats.holes = cached_.holes();
  stats.pin_budget_blocks = options_.pin_budget_blocks;
  residency_.AddStats(&stats);
  return stats;
}

void WindowBlockManager::CheckInvariants(const Holders& holders) const {
  residency_.CheckInvariants(holders);
  pins_.CheckInvariants();
  cached_.CheckInvariants();
  uint32_t free_ids = 0;
  for (uint32_t i = 0; i < store_.num_ids(); ++i) {
    CheckBlock(BlockId{i}, holders[i].size());
    if (store_[BlockId{i}].state() == BlockState::kFree) ++free_ids;
  }
  PAGODA_CHECK(free_ids == store_.free_ids(), "rule 4: an id is free or in use");
}

void WindowBlockManager::CheckBlock(BlockId id, size_t num_holders) const {
  const Block& block = store_[id];
  PAGODA_CHECK(!block.pinned || block.state() == BlockState::kCached,
               "rule 15: a pin ends before its prefix leaves the tree");
  PAGODA_CHECK((block.state() == BlockState::kRaw ? 1 : block.refs) == num_holders,
               "a block's references are its holders");
  PAGODA_CHECK(static_cast<bool>(block.pinned) == (pins_.PinsOf(id) != 0) &&
                   static_cast<bool>(block.timed) == holds_.has_duration(id),
               "a block is marked if it has state beside it");
  PAGODA_CHECK(!OwnsSlot(block.state()) || block.refs > 0 || block.state() == BlockState::kCached,
               "a block that nothing holds is free, cached or a hole");
  switch (block.state()) {
    case BlockState::kFree:
      PAGODA_CHECK(block.refs == 0, "rule 4: nothing holds a free block");
      break;
    case BlockState::kAlias:
      PAGODA_CHECK(block.refs > 0, "an alias is held");
      break;
    case BlockState::kRaw:
    case BlockState::kPrivate:
      PAGODA_CHECK(block.tier() == kPrimaryTier || block.deferred,
                   "a sequence writes in the primary tier");
      break;
    case BlockState::kHole:
      PAGODA_CHECK(sliding() && block.refs == 0 && tree_.has_children(id),
                   "a hole is in a sliding window, has children and no holder");
      break;
    case BlockState::kCached:
      break;
  }
}

}  // namespace pagoda
