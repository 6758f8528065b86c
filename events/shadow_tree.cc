#include "events/shadow_tree.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace pagoda {
namespace {

absl::Status Misfit(std::string_view what, BlockId id) {
  return absl::FailedPreconditionError(absl::StrCat(std::string(what), ": block ", id.value()));
}

}  // namespace

absl::Status ShadowTree::Apply(const Event& event) {
  if (revision_.value() != 0 && event.revision.value() != revision_.value() + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("revision ", event.revision.value(), " follows ", revision_.value()));
  }
  revision_ = event.revision;
  Tree& tree = trees_[event.window];
  if (const auto* stored = std::get_if<StoredEvent>(&event.what)) return ApplyStored(tree, *stored);
  if (const auto* updated = std::get_if<UpdatedEvent>(&event.what)) {
    return ApplyUpdated(tree, *updated);
  }
  if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
    return ApplyRemoved(tree, *removed);
  }
  return absl::OkStatus();  // Created changes no tree.
}

absl::Status ShadowTree::ApplyStored(Tree& tree, const StoredEvent& stored) {
  BlockId parent = stored.parent;
  BlockHash parent_hash = stored.parent_hash.value_or(HashNamespace(stored.name_space));
  if (stored.parent_hash.has_value() != (parent != kNoBlock)) {
    return Misfit("parent hash without parent, or the reverse", parent);
  }
  absl::Span<const TokenId> tokens = stored.tokens;
  for (const StoredBlock& block : stored.blocks) {
    if (parent != kNoBlock) {
      const auto it = tree.find(parent);
      if (it == tree.end()) return Misfit("stored below a parent that is not cached", block.id);
      if (it->second.entry.hash != parent_hash) return Misfit("wrong parent hash", block.id);
      ++it->second.children;
    }
    if (block.token_count > tokens.size()) return Misfit("too few tokens", block.id);
    const absl::Span<const TokenId> own = tokens.first(block.token_count);
    tokens.remove_prefix(block.token_count);
    if (HashBlock(parent_hash, own) != block.hash) return Misfit("wrong hash", block.id);
    TreeEntry entry{block.id,   block.hash,    parent, stored.name_space, {own.begin(), own.end()},
                    block.tier, block.priority};
    if (!tree.emplace(block.id, Node{std::move(entry)}).second) {
      return Misfit("stored twice", block.id);
    }
    parent = block.id;
    parent_hash = block.hash;
  }
  return tokens.empty() ? absl::OkStatus() : Misfit("too many tokens", parent);
}

absl::Status ShadowTree::ApplyUpdated(Tree& tree, const UpdatedEvent& updated) {
  const auto it = tree.find(updated.id);
  if (it == tree.end()) return Misfit("updated but not cached", updated.id);
  TreeEntry& entry = it->second.entry;
  if (updated.tier.has_value()) {
    if (entry.tier != updated.tier->old_value) return Misfit("wrong old tier", updated.id);
    entry.tier = updated.tier->new_value;
  }
  if (updated.priority.has_value()) {
    if (entry.priority != updated.priority->old_value)
      return Misfit("wrong old priority", updated.id);
    entry.priority = updated.priority->new_value;
  }
  return absl::OkStatus();
}

absl::Status ShadowTree::ApplyRemoved(Tree& tree, const RemovedEvent& removed) {
  if (removed.reason == RemovalReason::kReleased) return absl::OkStatus();  // Raw blocks.
  if (removed.scope == RemovedEvent::Scope::kWindow) {
    tree.clear();
    return absl::OkStatus();
  }
  if (removed.blocks.size() != removed.hashes.size()) {
    return absl::FailedPreconditionError("ids and hashes of a removal differ in number");
  }
  for (size_t i = 0; i < removed.blocks.size(); ++i) {
    if (absl::Status status = RemoveOne(tree, removed.blocks[i], removed.hashes[i]); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status ShadowTree::RemoveOne(Tree& tree, BlockId id, BlockHash hash) {
  const auto it = tree.find(id);
  if (it == tree.end()) return Misfit("removed but not cached", id);
  if (it->second.children != 0) return Misfit("removed before its children", id);
  if (it->second.entry.hash != hash) return Misfit("removed with a wrong hash", id);
  if (const BlockId parent = it->second.entry.parent; parent != kNoBlock) {
    --tree.at(parent).children;
  }
  tree.erase(it);
  return absl::OkStatus();
}

std::vector<TreeEntry> ShadowTree::Dump(WindowSize window) const {
  std::vector<TreeEntry> entries;
  if (const auto it = trees_.find(window); it != trees_.end()) {
    for (const auto& [id, node] : it->second) entries.push_back(node.entry);
  }
  return entries;
}

}  // namespace pagoda
