#include "tests/events/shadow_tree.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pagoda {
namespace {

absl::Status TreeMisfit(std::string_view what, BlockId id) {
  return absl::FailedPreconditionError(absl::StrCat(std::string(what), ": block ", id.value()));
}

bool SaysNothing(absl::Span<const TokenExtra> extras) {
  return std::all_of(extras.begin(), extras.end(),
                     [](const TokenExtra& extra) { return extra == TokenExtra{}; });
}

// How `theirs` differs from `ours`; null if it does not.
const char* Difference(const TreeEntry& ours, const TreeEntryView& theirs) {
  if (ours.hash != theirs.hash) return "another hash";
  if (ours.parent != theirs.parent) return "another parent";
  if (ours.tier != theirs.tier) return "another tier";
  if (ours.priority != theirs.priority) return "another priority";
  if (ours.lower != theirs.lower) return "other lower copies";
  if (!SameKey(ours.key(), theirs.key)) return "other tokens";
  if (!(ours.name_space == theirs.name_space)) return "another namespace";
  return nullptr;
}

// Whether the lower copies are all in farther tiers than `tier`.
bool IsBelow(TierSet lower, Tier tier) {
  return (lower.bits() & ((2u << tier.value()) - 1)) == 0 && lower.bits() < 1u << kMaxTiers;
}

TreeEntryView ViewOf(const TreeEntry& entry) {
  return {.id = entry.id,
          .hash = entry.hash,
          .parent = entry.parent,
          .name_space = entry.name_space,
          .key = entry.key(),
          .tier = entry.tier,
          .priority = entry.priority,
          .lower = entry.lower};
}

}  // namespace

bool ShadowTree::Node::has_children() const {
  return hole_children != 0 ||
         std::any_of(children.begin(), children.end(), [](uint32_t count) { return count != 0; });
}

// --- Applying ---

absl::Status ShadowTree::Apply(const Event& event) {
  if (in_snapshot_) return ApplyToSnapshot(event);
  if (revision_.value() != 0 && event.revision.value() != revision_.value() + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("revision ", event.revision.value(), " follows ", revision_.value()));
  }
  revision_ = event.revision;
  Window& window = windows_[event.window];
  window.full_attention = event.window == kFullAttention;
  if (const auto* stored = std::get_if<StoredEvent>(&event.what)) {
    return ApplyStored(window, *stored);
  }
  if (const auto* updated = std::get_if<UpdatedEvent>(&event.what)) {
    return ApplyUpdated(window, *updated);
  }
  if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
    return ApplyRemoved(window, *removed);
  }
  return absl::OkStatus();  // Created changes no tree.
}

absl::Status ShadowTree::ApplyStored(Window& window, const StoredEvent& stored) {
  return ForEachStored(stored, [&window](BlockHash parent_hash, TreeEntry entry) {
    return StoreOne(window, parent_hash, std::move(entry));
  });
}

absl::Status ShadowTree::ForEachStored(const StoredEvent& stored, StoreBlock store) {
  BlockId parent = stored.parent;
  BlockHash parent_hash = stored.parent_hash.value_or(HashNamespace(*stored.name_space));
  if (stored.parent_hash.has_value() != (parent != kNoBlock)) {
    return TreeMisfit("parent hash without parent, or the reverse", parent);
  }
  if (!stored.extras.empty() && stored.extras.size() != stored.tokens.size()) {
    return TreeMisfit("extras do not fit the tokens",
                      stored.blocks.empty() ? parent : stored.blocks[0].id);
  }
  size_t begin = 0;
  for (const StoredBlock& block : stored.blocks) {
    const size_t told = stored.EntriesOf(block);
    if (told > stored.tokens.size() - begin) return TreeMisfit("too few tokens", block.id);
    const BlockKey key = stored.KeyAt(begin, block);
    begin += told;
    if (told != 0 && key.keyed && !ClientKey::FromWords(key.tokens).has_value()) {
      return TreeMisfit("stored under no key", block.id);
    }
    if (!stored.content_hidden && HashBlock(parent_hash, key) != block.hash)
      return TreeMisfit("wrong hash", block.id);
    TreeEntry entry{.id = block.id,
                    .hash = block.hash,
                    .parent = parent,
                    .name_space = *stored.name_space,
                    .tokens = {key.tokens.begin(), key.tokens.end()},
                    .tier = block.tier,
                    .priority = block.priority,
                    .lower = block.lower};
    if (!SaysNothing(key.extras)) entry.extras.assign(key.extras.begin(), key.extras.end());
    absl::Status status = store(parent_hash, std::move(entry));
    if (!status.ok()) return status;
    parent = block.id;
    parent_hash = block.hash;
  }
  return begin == stored.tokens.size() ? absl::OkStatus() : TreeMisfit("too many tokens", parent);
}

absl::Status ShadowTree::StoreOne(Window& window, BlockHash parent_hash, TreeEntry entry) {
  if (entry.tier.value() >= kMaxTiers) return TreeMisfit("no such tier", entry.id);
  if (!IsBelow(entry.lower, entry.tier))
    return TreeMisfit("a lower copy in no farther tier", entry.id);
  if (entry.parent != kNoBlock) {
    if (absl::Status status = HangBelow(window, parent_hash, entry); !status.ok()) return status;
  }
  const auto [it, is_new] = window.nodes.try_emplace(entry.id);
  Node& node = it->second;
  if (node.cached) return TreeMisfit("stored twice", entry.id);
  if (!is_new) {  // A hole is filled.
    if (node.entry.hash != entry.hash) return TreeMisfit("other content than below it", entry.id);
    if (node.entry.parent != kNoBlock) {
      if (node.entry.parent != entry.parent)
        return TreeMisfit("another parent than before", entry.id);
      --window.nodes.at(entry.parent).hole_children;
    }
  }
  node.entry = std::move(entry);
  node.cached = true;
  ++window.num_cached;
  return absl::OkStatus();
}

// Counts a block, which the caller is about to store, as a child of its parent.
absl::Status ShadowTree::HangBelow(Window& window, BlockHash parent_hash, const TreeEntry& entry) {
  const auto [it, is_new] = window.nodes.try_emplace(entry.parent);
  Node& above = it->second;
  if (is_new) {
    if (window.full_attention)
      return TreeMisfit("stored below a parent that is not cached", entry.id);
    above.entry.id = entry.parent;
    above.entry.hash = parent_hash;
  }
  if (above.entry.hash != parent_hash) return TreeMisfit("wrong parent hash", entry.id);
  if (above.cached) {
    if (!(above.entry.name_space == entry.name_space)) {
      return TreeMisfit("another namespace than its parent's", entry.id);
    }
    // Without tokens the content is hidden. A keyed block is never a tail.
    if (!entry.tokens.empty() && above.entry.tokens.size() < entry.tokens.size()) {
      return TreeMisfit("stored below a tail", entry.id);
    }
    if (window.full_attention && entry.tier < above.entry.tier) {
      return TreeMisfit("stored in a nearer tier than its parent", entry.id);
    }
  }
  ++above.cached_children(entry.tier);
  return absl::OkStatus();
}

absl::Status ShadowTree::ApplyUpdated(Window& window, const UpdatedEvent& updated) {
  const auto it = window.nodes.find(updated.id);
  if (it == window.nodes.end() || !it->second.cached) {
    return TreeMisfit("updated but not cached", updated.id);
  }
  TreeEntry& entry = it->second.entry;
  if (entry.hash != updated.hash) return TreeMisfit("updated with a wrong hash", updated.id);
  const bool changes =
      updated.tier.has_value() || updated.lower.has_value() || updated.priority.has_value();
  if (changes == updated.ended_pin.has_value()) {
    return TreeMisfit("updated without a change, or with a pin's end beside one", updated.id);
  }
  if (updated.priority.has_value()) {
    if (entry.priority != updated.priority->old_value) {
      return TreeMisfit("wrong old priority", updated.id);
    }
    entry.priority = updated.priority->new_value;
  }
  if (updated.tier.has_value()) {
    if (absl::Status status = MoveOne(window, it->second, *updated.tier); !status.ok()) {
      return status;
    }
  }
  return UpdateLower(entry, updated);
}

absl::Status ShadowTree::UpdateLower(TreeEntry& entry, const UpdatedEvent& updated) {
  if (updated.lower.has_value()) {
    if (entry.lower != updated.lower->old_value) return TreeMisfit("other lower copies", entry.id);
    entry.lower = updated.lower->new_value;
  }
  return IsBelow(entry.lower, entry.tier) ? absl::OkStatus()
                                          : TreeMisfit("a lower copy in no farther tier", entry.id);
}

absl::Status ShadowTree::MoveOne(Window& window, Node& node, const Change<Tier>& change) {
  TreeEntry& entry = node.entry;
  if (entry.tier != change.old_value) return TreeMisfit("wrong old tier", entry.id);
  if (change.new_value.value() >= kMaxTiers) return TreeMisfit("no such tier", entry.id);
  if (window.full_attention) {
    for (size_t nearer = 0; nearer < change.new_value.value(); ++nearer) {
      if (node.children[nearer] != 0) return TreeMisfit("moved below its children", entry.id);
    }
  }
  if (entry.parent != kNoBlock) {
    Node& above = window.nodes.at(entry.parent);
    if (window.full_attention && change.new_value < above.entry.tier) {
      return TreeMisfit("moved above its parent", entry.id);
    }
    --above.cached_children(change.old_value);
    ++above.cached_children(change.new_value);
  }
  entry.tier = change.new_value;
  return absl::OkStatus();
}

absl::Status ShadowTree::ApplyRemoved(Window& window, const RemovedEvent& removed) {
  if (removed.scope != RemovedEvent::Scope::kBlocks) {
    window.nodes.clear();
    window.num_cached = 0;
    return absl::OkStatus();
  }
  if (removed.reason == RemovalReason::kReleased) return absl::OkStatus();  // Not in the tree.
  if (removed.blocks.size() != removed.hashes.size()) {
    return absl::FailedPreconditionError("ids and hashes of a removal differ in number");
  }
  for (size_t i = 0; i < removed.blocks.size(); ++i) {
    absl::Status status = RemoveOne(window, removed.blocks[i], removed.hashes[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ShadowTree::RemoveOne(Window& window, BlockId id, BlockHash hash) {
  const auto it = window.nodes.find(id);
  if (it == window.nodes.end() || !it->second.cached)
    return TreeMisfit("removed but not cached", id);
  Node& node = it->second;
  if (node.entry.hash != hash) return TreeMisfit("removed with a wrong hash", id);
  const bool leaves_a_hole = node.has_children();
  if (leaves_a_hole && window.full_attention) return TreeMisfit("removed before its children", id);
  if (node.entry.parent != kNoBlock) {
    Node& above = window.nodes.at(node.entry.parent);
    --above.cached_children(node.entry.tier);
    ++above.hole_children;
  }
  node.cached = false;
  --window.num_cached;
  if (!leaves_a_hole) EraseHoles(window, id);
  return absl::OkStatus();
}

// Forgets a hole without blocks below it, and the holes above it that lose their last child by
// this.
void ShadowTree::EraseHoles(Window& window, BlockId id) {
  while (id != kNoBlock) {
    const auto it = window.nodes.find(id);
    if (it->second.cached || it->second.has_children()) return;
    id = it->second.entry.parent;
    window.nodes.erase(it);
    if (id != kNoBlock) --window.nodes.at(id).hole_children;
  }
}

// --- Snapshots ---

void ShadowTree::BeginSnapshot() {
  windows_.clear();
  told_.clear();
  in_snapshot_ = true;
}

absl::Status ShadowTree::ApplyToSnapshot(const Event& event) {
  ToldBlocks& told = told_[event.window];
  if (const auto* stored = std::get_if<StoredEvent>(&event.what)) {
    return ForEachStored(*stored, [&told](BlockHash parent_hash, TreeEntry entry) {
      const BlockId id = entry.id;
      const bool is_new = told.try_emplace(id, Told{std::move(entry), parent_hash}).second;
      return is_new ? absl::OkStatus() : TreeMisfit("told twice", id);
    });
  }
  if (const auto* updated = std::get_if<UpdatedEvent>(&event.what)) {
    const auto it = told.find(updated->id);
    if (it == told.end()) return TreeMisfit("updated but not told", updated->id);
    TreeEntry& entry = it->second.entry;
    if (entry.hash != updated->hash) return TreeMisfit("updated with a wrong hash", updated->id);
    if (updated->tier.has_value()) {
      if (entry.tier != updated->tier->old_value) return TreeMisfit("wrong old tier", updated->id);
      entry.tier = updated->tier->new_value;
    }
    if (updated->priority.has_value()) {
      if (entry.priority != updated->priority->old_value) {
        return TreeMisfit("wrong old priority", updated->id);
      }
      entry.priority = updated->priority->new_value;
    }
    return UpdateLower(entry, *updated);
  }
  const auto* removed = std::get_if<RemovedEvent>(&event.what);
  if (removed == nullptr) return absl::OkStatus();
  if (removed->scope != RemovedEvent::Scope::kBlocks) {
    told.clear();
    return absl::OkStatus();
  }
  if (removed->reason == RemovalReason::kReleased) return absl::OkStatus();
  for (size_t i = 0; i < removed->blocks.size(); ++i) {
    const auto it = told.find(removed->blocks[i]);
    if (it == told.end()) return TreeMisfit("removed but not told", removed->blocks[i]);
    if (i >= removed->hashes.size() || it->second.entry.hash != removed->hashes[i]) {
      return TreeMisfit("removed with a wrong hash", removed->blocks[i]);
    }
    told.erase(it);
  }
  return absl::OkStatus();
}

absl::Status ShadowTree::EndSnapshot(Revision revision) {
  for (auto& [size, told] : told_) {
    Window& window = windows_[size];
    window.full_attention = size == kFullAttention;
    while (!told.empty()) {
      if (absl::Status status = Place(window, told, told.begin()->first); !status.ok()) {
        return status;
      }
    }
  }
  told_.clear();
  in_snapshot_ = false;
  revision_ = revision;
  return absl::OkStatus();
}

absl::Status ShadowTree::Place(Window& window, ToldBlocks& told, BlockId id) {
  std::vector<BlockId> path;  // Up to the first block that is placed, or that was not reported.
  for (auto it = told.find(id); it != told.end(); it = told.find(id)) {
    if (path.size() == told.size()) return TreeMisfit("its own ancestor", id);
    path.push_back(id);
    id = it->second.entry.parent;
  }
  for (; !path.empty(); path.pop_back()) {
    const auto it = told.find(path.back());
    const BlockHash parent_hash = it->second.parent_hash;
    TreeEntry entry = std::move(it->second.entry);
    told.erase(it);
    absl::Status status = StoreOne(window, parent_hash, std::move(entry));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// --- Comparing ---

std::vector<TreeEntry> ShadowTree::Dump(WindowSize window) const {
  std::vector<TreeEntry> entries;
  const auto found = windows_.find(window);
  if (found == windows_.end()) return entries;
  for (const auto& [id, node] : found->second.nodes) {
    if (node.cached) entries.push_back(node.entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const TreeEntry& a, const TreeEntry& b) { return a.id < b.id; });
  return entries;
}

absl::Status ShadowTree::Compare(WindowSize window,
                                 absl::FunctionRef<void(TreeVisitor)> visit_all) const {
  static const Window kNothing;
  const auto found = windows_.find(window);
  const Window& ours = found == windows_.end() ? kNothing : found->second;
  absl::Status status;
  std::optional<BlockId> last;
  size_t num_shown = 0;
  const auto differs = [&](std::string_view what, BlockId id) {
    if (status.ok()) status = TreeMisfit(what, id);
  };
  visit_all([&](const TreeEntryView& theirs) {
    if (last.has_value() && theirs.id <= *last) differs("not shown in order of ids", theirs.id);
    last = theirs.id;
    ++num_shown;
    const auto it = ours.nodes.find(theirs.id);
    if (it == ours.nodes.end() || !it->second.cached) {
      return differs("in the tree, but not reported by the events", theirs.id);
    }
    if (const char* what = Difference(it->second.entry, theirs); what != nullptr) {
      differs(absl::StrCat("the events tell of ", what), theirs.id);
    }
  });
  if (!status.ok() || num_shown == ours.num_cached) return status;
  // Each shown block is ours and was shown once, so some of our blocks were not shown.
  std::vector<TreeEntry> unseen = Dump(window);
  visit_all([&](const TreeEntryView& theirs) {
    std::erase_if(unseen, [&](const TreeEntry& entry) { return entry.id == theirs.id; });
  });
  return TreeMisfit("reported by the events, but not in the tree", unseen.front().id);
}

absl::Status ShadowTree::Compare(WindowSize window, absl::Span<const TreeEntry> entries) const {
  return Compare(window, [entries](TreeVisitor visit) {
    for (const TreeEntry& entry : entries) visit(ViewOf(entry));
  });
}

}  // namespace pagoda
