// The invariants of WindowBlockManager, checked from scratch.
#include <optional>
#include <vector>

#include "manager/window_block_manager.h"
#include "pools/check.h"

namespace pagoda {

void WindowBlockManager::CheckAccounting() const {
  PAGODA_CHECK(store_.free_count() + cached_unheld_ + held_ == capacity(),
               "rule 5: free + cached + active + pinned + in flight = capacity");
}

void WindowBlockManager::CheckInvariants(absl::Span<const uint32_t> holders) const {
  CheckAccounting();
  uint32_t free = 0, unheld = 0, held = 0;
  std::vector<bool> slot_used(capacity());
  std::vector<uint32_t> children(capacity());
  for (uint32_t i = 0; i < capacity(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    PAGODA_CHECK(block.refs == holders[i], "a block's references are its holders");
    if (block.state == BlockState::kFree) {
      PAGODA_CHECK(block.refs == 0, "rule 4: nobody holds a free block");
      ++free;
      continue;
    }
    PAGODA_CHECK(!slot_used[block.slot.value()], "rule 2: no two blocks share a slot");
    slot_used[block.slot.value()] = true;
    PAGODA_CHECK(block.refs > 0 || block.state == BlockState::kCached,
                 "what nobody holds is free or cached");
    ++(block.refs > 0 ? held : unheld);
    if (block.state != BlockState::kCached) continue;

    const NodeRef parent = tree_.parent(id);
    PAGODA_CHECK(tree_.FindChild(parent, store_.content(id)) == id,
                 "rule 12: a cached block is found by its content");
    PAGODA_CHECK(tree_.hash(id) == HashBlock(tree_.hash(parent), store_.content(id)),
                 "rule 12: a block's hash is its content's");
    if (parent.is_root()) continue;
    const Block& above = store_[parent.block()];
    ++children[parent.block().value()];
    PAGODA_CHECK(above.state == BlockState::kCached, "rule 13: a cached block's parent is cached");
    PAGODA_CHECK(above.token_count == tokens_per_block().value(),
                 "rule 12: a tail has no children");
    PAGODA_CHECK(block.refs == 0 || above.refs > 0, "rule 13: a held block's path is held");
  }
  PAGODA_CHECK(free == store_.free_count() && unheld == cached_unheld_ && held == held_,
               "rule 5: the counters are the blocks");
  for (uint32_t i = 0; i < capacity(); ++i) {
    const bool cached = store_[BlockId{i}].state == BlockState::kCached;
    PAGODA_CHECK(!cached || tree_.num_children(BlockId{i}) == children[i],
                 "a node counts its children");
  }
  PAGODA_CHECK((unheld == 0) == (policy_->Victim() == kNoBlock),
               "rule 13: what nobody holds can be evicted");
}

std::vector<TreeEntry> WindowBlockManager::DumpTree() const {
  std::vector<TreeEntry> entries;
  for (uint32_t i = 0; i < capacity(); ++i) {
    const BlockId id{i};
    const Block& block = store_[id];
    if (block.state != BlockState::kCached) continue;
    const NodeRef parent = tree_.parent(id);
    const absl::Span<const TokenId> content = store_.content(id);
    entries.push_back({.id = id,
                       .hash = tree_.hash(id),
                       .parent = parent.is_root() ? kNoBlock : parent.block(),
                       .name_space = tree_.NamespaceOf(id),
                       .tokens = {content.begin(), content.end()},
                       .tier = block.tier});
  }
  return entries;
}

}  // namespace pagoda
