#include "manager/window/publishable_prefixes.h"

#include <cstddef>
#include <utility>

namespace pagoda {
namespace {

// Appends the extras of the block behind the prefix's first `begin` tokens.
void AppendExtras(absl::Span<const TokenExtra> extras, size_t begin, PublishablePrefix* prefix) {
  prefix->extra_token_ids.resize(begin);
  for (const TokenExtra& extra : extras) prefix->extra_token_ids.push_back(extra.extra_id);
  std::vector<MultimodalItem>& items = prefix->multimodal_items;
  for (MultimodalItem item : ItemsOf(extras)) {
    item.token_start += static_cast<uint32_t>(begin);
    if (!items.empty()) {
      MultimodalItem& last = items.back();
      const bool goes_on = last.digest == item.digest &&
                           last.token_start + last.token_count == item.token_start &&
                           last.item_offset + last.token_count == item.item_offset;
      if (goes_on) {
        last.token_count += item.token_count;
        continue;
      }
    }
    items.push_back(item);
  }
}

}  // namespace

PublishablePrefixes::PublishablePrefixes(const WindowFloor& floor) : WindowPart(floor) {
  if (options_.publish_min_uses.has_value()) {
    queue_.emplace(*options_.publish_min_uses, store_.num_ids());
  }
}

PublishableBlocks PublishablePrefixes::counts() const {
  if (!queue_.has_value()) return {};
  return {.queued = queue_->size(), .forgotten = queue_->forgotten()};
}

void PublishablePrefixes::Take(uint32_t max_prefixes, uint32_t max_blocks,
                               std::vector<PublishablePrefix>* out) {
  const size_t end = out->size() + max_prefixes;
  uint32_t looked = 0;
  std::vector<BlockId> path;  // From the last block up.
  while (queue_.has_value() && queue_->size() != 0 && out->size() < end && looked < max_blocks) {
    const BlockId last = queue_->PopNewest();
    ++looked;
    if (!IsPublishable(last)) continue;
    path.assign(1, last);
    NodeRef node = tree_.parent(last);
    for (; !node.is_root() && HasBytesInMemory(node.block()); node = tree_.parent(path.back())) {
      path.push_back(node.block());
    }
    looked += static_cast<uint32_t>(path.size());
    // Below a hole, or a block that is on disk alone: a store could not give it back.
    if (!node.is_root()) continue;
    for (const BlockId id : path) queue_->Remove(id);
    out->push_back(PrefixOf(path, node));
  }
}

// Whether a block of the queue is still worth publishing. Its id can have a new life by now.
bool PublishablePrefixes::IsPublishable(BlockId id) const {
  const Block& block = store_[id];
  return HasBytesInMemory(id) && !tree_.IsCutOff(id) && block.uses >= queue_->min_uses() &&
         block.token_count == tokens_per_block().value();
}

bool PublishablePrefixes::HasBytesInMemory(BlockId id) const {
  return store_[id].state() == BlockState::kCached &&
         !residency_.slots().IsOnDisk(store_[id].tier());
}

// The prefix of a path, which is given from its last block up.
PublishablePrefix PublishablePrefixes::PrefixOf(absl::Span<const BlockId> path,
                                                NodeRef root) const {
  PublishablePrefix prefix{.name_space = tree_.key(root), .owner = accounts().owner(path.front())};
  if (prefix.name_space.keyed) {
    prefix.keys.reserve(path.size());
    for (size_t i = path.size(); i-- > 0;) prefix.keys.push_back(store_.client_key(path[i]));
    return prefix;
  }
  prefix.tokens.reserve(path.size() * tokens_per_block().value());
  for (size_t i = path.size(); i-- > 0;) {
    const BlockKey key = store_.key(path[i]);
    if (key.has_extras()) AppendExtras(key.extras, prefix.tokens.size(), &prefix);
    prefix.tokens.insert(prefix.tokens.end(), key.tokens.begin(), key.tokens.end());
  }
  if (!prefix.extra_token_ids.empty()) prefix.extra_token_ids.resize(prefix.tokens.size());
  return prefix;
}

}  // namespace pagoda
