// Random events that a manager could send, and the tree that they make. For tests of code that
// applies or writes events.
#ifndef PAGODA_TESTS_EVENTS_TREE_MODEL_H_
#define PAGODA_TESTS_EVENTS_TREE_MODEL_H_

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/events/shadow_tree.h"

namespace pagoda {

// A window's tree as plain maps. Draws changes of it, each of one block, that keep the events' law.
class TreeModel {
 public:
  TreeModel(WindowSize window, uint64_t seed) : full_(window == kFullAttention), rng_(seed) {}

  // The next change, already applied here.
  decltype(Event::what) Next() {
    for (;;) {
      const BlockId id{Draw(kIds)};
      const auto it = cached_.find(id);
      if (it == cached_.end()) {
        if (!HasChildren(id)) return Store(id);
        if (Draw(2) == 0) return Refill(id);
      } else if (Draw(2) == 0 && (!full_ || !HasChildren(id))) {
        return Remove(id);
      } else if (Draw(2) == 0) {
        return Reprioritize(it->second);
      } else {
        const Tier to = DrawTier();
        const TierSet lower = DrawLower(to);
        const TreeEntry& entry = it->second;
        const bool changes = to != entry.tier || lower != entry.lower;
        if (changes && MayMove(entry, to)) return Move(it->second, to, lower);
      }
    }
  }

  // Ascending by block id.
  std::vector<TreeEntry> Entries() const {
    std::vector<TreeEntry> entries;
    for (const auto& [id, entry] : cached_) entries.push_back(entry);
    return entries;
  }

  // The tokens from the prompt's start to the end of a block that was stored. A block has two.
  uint32_t EndToken(BlockId id) const {
    uint32_t tokens = 0;
    for (; id != kNoBlock; id = known_.at(id).parent) tokens += 2;
    return tokens;
  }

 private:
  static constexpr uint32_t kIds = 12;

  uint32_t Draw(uint32_t end) { return static_cast<uint32_t>(rng_() % end); }
  Tier DrawTier() { return Tier(Draw(kMaxTiers)); }
  // Empty in half of the cases.
  TierSet DrawLower(Tier tier) {
    const uint32_t farther = ~((2u << tier.value()) - 1);
    const uint32_t some = Draw(2) == 0 ? Draw(1u << kMaxTiers) : 0;
    return TierSet::FromBits(static_cast<uint8_t>(some & farther));
  }
  // Whether a cached block is below `id`, perhaps with holes between.
  bool HasChildren(BlockId id) const {
    for (const auto& [other, entry] : cached_) {
      for (BlockId above = entry.parent; above != kNoBlock; above = known_.at(above).parent) {
        if (above == id) return true;
      }
    }
    return false;
  }

  StoredEvent Store(BlockId id) {
    TreeEntry entry{.id = id, .tier = DrawTier()};
    if (Draw(2) == 0) entry.name_space.tenant = std::string("a");
    BlockHash parent_hash = HashNamespace(entry.name_space);
    if (const BlockId parent{Draw(kIds)}; cached_.contains(parent) || HasChildren(parent)) {
      const TreeEntry& above = cached_.contains(parent) ? cached_.at(parent) : known_.at(parent);
      entry.parent = parent;
      parent_hash = above.hash;
      entry.name_space = above.name_space;
      if (full_) entry.tier = std::max(entry.tier, above.tier);
    }
    entry.lower = DrawLower(entry.tier);
    entry.tokens = {Draw(1000), Draw(1000)};
    if (Draw(2) == 0) entry.extras = {DrawExtra(), DrawExtra()};
    entry.hash = HashBlock(parent_hash, entry.key());
    return Stored(entry, parent_hash);
  }
  TokenExtra DrawExtra() {
    TokenExtra extra{.extra_id = Draw(3)};
    extra.in_item = Draw(2) == 0;
    if (extra.in_item) {
      extra.digest = {Draw(2), 0, 0, ~uint64_t{0}};
      extra.item_offset = Draw(3);
    }
    return extra;
  }
  // A hole gets its content back.
  StoredEvent Refill(BlockId id) {
    const TreeEntry& entry = known_.at(id);
    return Stored(entry, entry.parent == kNoBlock ? HashNamespace(entry.name_space)
                                                  : known_.at(entry.parent).hash);
  }
  StoredEvent Stored(const TreeEntry& entry, BlockHash parent_hash) {
    cached_[entry.id] = known_[entry.id] = entry;
    StoredEvent event{
        .parent = entry.parent,
        .first_token = EndToken(entry.parent),
        .name_space = entry.name_space,
        .blocks = {{entry.id, entry.hash, 2, entry.tier, entry.priority, entry.lower}},
        .tokens = {entry.tokens.begin(), entry.tokens.end()},
        .extras = {entry.extras.begin(), entry.extras.end()}};
    if (entry.parent != kNoBlock) event.parent_hash = parent_hash;
    return event;
  }
  RemovedEvent Remove(BlockId id) {
    const BlockHash hash = cached_.at(id).hash;
    cached_.erase(id);
    constexpr RemovalReason kReasons[] = {RemovalReason::kEvicted, RemovalReason::kDisplaced,
                                          RemovalReason::kInvalidated};
    return {.reason = kReasons[Draw(3)],
            .blocks = {id},
            .hashes = {hash},
            .end_tokens = {EndToken(id)}};
  }
  UpdatedEvent Reprioritize(TreeEntry& entry) {
    const Priority old = std::exchange(entry.priority, Priority{static_cast<uint8_t>(Draw(101))});
    return {.id = entry.id,
            .end_token = EndToken(entry.id),
            .hash = entry.hash,
            .priority = Change<Priority>{old, entry.priority}};
  }
  bool MayMove(const TreeEntry& entry, Tier to) const {
    if (!full_) return true;
    if (entry.parent != kNoBlock && cached_.at(entry.parent).tier > to) return false;
    return std::none_of(cached_.begin(), cached_.end(), [&](const auto& other) {
      return other.second.parent == entry.id && other.second.tier < to;
    });
  }
  UpdatedEvent Move(TreeEntry& entry, Tier to, TierSet lower) {
    UpdatedEvent updated{.id = entry.id, .end_token = EndToken(entry.id), .hash = entry.hash};
    if (entry.tier != to) updated.tier = Change<Tier>{entry.tier, to};
    if (entry.lower != lower) updated.lower = Change<TierSet>{entry.lower, lower};
    entry.tier = to;
    entry.lower = lower;
    return updated;
  }

  const bool full_;
  std::mt19937_64 rng_;
  std::map<BlockId, TreeEntry> cached_;
  std::map<BlockId, TreeEntry> known_;  // The entry of an id when it was last stored.
};

}  // namespace pagoda

#endif  // PAGODA_TESTS_EVENTS_TREE_MODEL_H_
