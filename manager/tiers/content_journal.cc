#include "manager/tiers/content_journal.h"

#include <optional>

namespace pagoda {

SlotContent ContentJournal::ContentOf(BlockId id) const {
  const NodeRef parent = tree_.parent(id);
  const BlockKey key = store_.key(id);
  SlotContent content{.block = store_.handle(id).ref(),
                      .tokens = {key.tokens.begin(), key.tokens.end()},
                      .extras = {key.extras.begin(), key.extras.end()},
                      .priority = store_[id].priority(),
                      .keyed = key.keyed};
  if (parent.is_root()) {
    content.name_space = tree_.key(parent);
  } else {
    content.parent = store_.handle(parent.block()).ref();
  }
  return content;
}

void ContentJournal::WriteContent(BlockId id) {
  const SlotRef slot = store_.slot(id);
  changes_->push_back({.window_index = index_,
                       .slot = slot,
                       .ready = copies_.Arrival(slot),
                       .content = ContentOf(id)});
}

void ContentJournal::WriteNothing(SlotRef slot) {
  changes_->push_back({.window_index = index_, .slot = slot, .ready = {}, .content = std::nullopt});
}

}  // namespace pagoda
