#include "tests/sim/record/shadow.h"

#include <algorithm>
#include <tuple>

#include "events/block_hash.h"
#include "tests/sim/words/fail.h"

namespace pagoda::sim {

Shadow::Shadow(const SimConfig* config, uint32_t window_index)
    : config_(config),
      window_(config->windows[window_index].size),
      sliding_(!config->windows[window_index].full()),
      absent_(),
      roots_(config->name_spaces.size(), kNone) {
  for (const NamespaceKey& key : config->name_spaces) root_hashes_.push_back(HashNamespace(key));
}

uint32_t Shadow::NameSpaceIndex(const NamespaceKey& key) const {
  const auto it = std::find(config_->name_spaces.begin(), config_->name_spaces.end(), key);
  SIM_CHECK(it != config_->name_spaces.end(), "a block is stored in a name space nobody used");
  return static_cast<uint32_t>(it - config_->name_spaces.begin());
}

void Shadow::ApplyStored(const StoredEvent& stored) {
  uint32_t parent = stored.parent.value();
  SIM_CHECK(!stored.blocks.empty(), "law: a Stored event without blocks");
  SIM_CHECK(stored.parent_hash.has_value() == (parent != kNone),
            "law: a parent hash without a parent, or the reverse");
  SIM_CHECK(stored.extras.empty() || stored.extras.size() == stored.tokens.size(),
            "law: ", stored.extras.size(), " extras for ", stored.tokens.size(), " tokens");
  if (parent != kNone) {
    SIM_CHECK(node(parent).in_tree(), "law: block ", stored.blocks[0].id.value(), " stored below ",
              parent, ", which is not in the tree");
    SIM_CHECK(node(parent).hash == *stored.parent_hash, "law: wrong parent hash");
  }
  const uint32_t first_token = parent == kNone ? 0 : EndToken(parent);
  SIM_CHECK(stored.first_token == first_token, "law: a Stored event begins at token ",
            stored.first_token, " instead of ", first_token);
  const uint32_t name_space = NameSpaceIndex(*stored.name_space);
  size_t begin = 0;
  for (const StoredBlock& block : stored.blocks) {
    StoreOne(stored, block, parent, name_space, begin);
    begin += stored.EntriesOf(block);
    parent = block.id.value();
  }
  SIM_CHECK(begin == stored.tokens.size(), "law: tokens without a block in a Stored event");
}

void Shadow::StoreOne(const StoredEvent& stored, const StoredBlock& block, uint32_t parent,
                      uint32_t name_space, size_t begin) {
  const uint32_t id = block.id.value();
  SIM_CHECK(id < 4096, "an absurd block id: ", id);
  if (id >= nodes_.size()) nodes_.resize(id + 1);
  Node& node = nodes_[id];
  const uint32_t count = block.token_count;
  SIM_CHECK(node.state != Node::State::kCached, "law: block ", id, " stored twice");
  SIM_CHECK(count > 0 && count <= config_->tokens_per_block &&
                (!stored.keyed() || count == config_->tokens_per_block) &&
                begin + stored.EntriesOf(block) <= stored.tokens.size(),
            "law: block ", id, " stored with ", count, " tokens");
  SIM_CHECK(parent == kNone || (nodes_[parent].count == config_->tokens_per_block &&
                                nodes_[parent].name_space == name_space),
            "law: block ", id, " stored below a tail, or in another name space: ", parent);
  std::array<TokenKey, kMaxTokensPerBlock> keys;
  Value value = parent == kNone ? RootValue(name_space)
                                : nodes_[parent].values[config_->tokens_per_block - 1];
  std::array<Value, kMaxTokensPerBlock> values;
  const BlockKey key = stored.KeyAt(begin, block);
  const std::vector<TokenId> tokens = TokensOf(key, config_->tokens_per_block);
  for (uint32_t i = 0; i < count; ++i) {
    keys[i] = key.has_extras() ? KeyOf(tokens[i], key.extras[i]) : KeyOf(tokens[i]);
    value = values[i] = Extend(value, keys[i]);
  }
  const BlockHash parent_hash = parent == kNone ? root_hashes_[name_space] : nodes_[parent].hash;
  SIM_CHECK(HashBlock(parent_hash, key) == block.hash, "law: block ", id, " with a wrong hash");

  ++cached_count_;
  if (node.state == Node::State::kHole) {
    SIM_CHECK(node.parent == parent && node.count == count && node.hash == block.hash &&
                  node.values[count - 1] == value,
              "law: the hole ", id, " is filled with something else");
    --holes_;
  } else {
    const uint32_t twin = FindChild(parent, name_space, {keys.data(), count});
    SIM_CHECK(twin == kNone, "law: block ", id, " repeats its sibling ", twin);
    node = Node{};
    node.count = static_cast<uint8_t>(count);
    node.name_space = name_space;
    node.depth = parent == kNone ? 0 : nodes_[parent].depth + 1;
    node.parent = parent;
    node.hash = block.hash;
    node.keys = keys;
    node.values = values;
    contents_.resize(nodes_.size());
    contents_[id] = {tokens, {key.extras.begin(), key.extras.end()}};
    uint32_t& first = parent == kNone ? roots_[name_space] : nodes_[parent].first_child;
    node.next_sibling = first;
    first = id;
  }
  node.state = Node::State::kCached;
  node.tier = block.tier;
  node.priority = block.priority;
  node.lower = block.lower;
  CheckLower(id);
}

void Shadow::CheckLower(uint32_t id) const {
  for (const Tier tier : kTiers) {
    SIM_CHECK(!nodes_[id].lower.contains(tier) || tier > nodes_[id].tier, "law: block ", id,
              " has a lower copy in no farther tier");
  }
}

void Shadow::ApplyUpdated(const UpdatedEvent& updated) {
  const uint32_t id = updated.id.value();
  SIM_CHECK(node(id).cached(), "law: block ", id, " updated but not cached");
  Node& node = nodes_[id];
  SIM_CHECK(node.hash == updated.hash, "law: block ", id, " updated with a wrong hash");
  const bool changes =
      updated.tier.has_value() || updated.lower.has_value() || updated.priority.has_value();
  SIM_CHECK(changes != updated.ended_pin.has_value(),
            "law: an Updated event that says nothing, or a pin's end beside a change");
  const uint32_t end_token = changes ? EndToken(id) : 0;
  SIM_CHECK(updated.end_token == end_token, "law: block ", id, " is updated as ending at token ",
            updated.end_token, " instead of ", end_token);
  if (updated.tier.has_value()) {
    SIM_CHECK(node.tier == updated.tier->old_value && node.tier != updated.tier->new_value,
              "law: block ", id, " updated from a wrong tier");
    node.tier = updated.tier->new_value;
  }
  if (updated.lower.has_value()) {
    SIM_CHECK(node.lower == updated.lower->old_value && node.lower != updated.lower->new_value,
              "law: block ", id, " updated from other lower copies");
    node.lower = updated.lower->new_value;
  }
  CheckLower(id);
  if (updated.priority.has_value()) {
    SIM_CHECK(node.priority == updated.priority->old_value &&
                  node.priority != updated.priority->new_value,
              "law: block ", id, " updated from a wrong priority");
    node.priority = updated.priority->new_value;
  }
}

void Shadow::Clear() {
  for (Node& node : nodes_) node = Node{};
  std::fill(roots_.begin(), roots_.end(), kNone);
  cached_count_ = holes_ = 0;
}

uint32_t Shadow::EndToken(uint32_t id) const {
  return nodes_[id].depth * config_->tokens_per_block + nodes_[id].count;
}

void Shadow::Remove(BlockId block, BlockHash hash, uint32_t end_token) {
  const uint32_t id = block.value();
  SIM_CHECK(node(id).cached(), "law: block ", id, " removed but not cached");
  SIM_CHECK(nodes_[id].hash == hash, "law: block ", id, " removed with a wrong hash");
  SIM_CHECK(EndToken(id) == end_token, "law: block ", id, " is removed as ending at token ",
            end_token, " instead of ", EndToken(id));
  --cached_count_;
  if (HasChildren(id)) {
    SIM_CHECK(sliding_, "law: block ", id, " removed before its children");
    nodes_[id].state = Node::State::kHole;
    ++holes_;
    return;
  }
  const uint32_t parent = nodes_[id].parent;
  Unlink(id);
  DropEmptyHoles(parent);
}

void Shadow::DropEmptyHoles(uint32_t id) {
  while (id != kNone && nodes_[id].state == Node::State::kHole && !HasChildren(id)) {
    const uint32_t parent = nodes_[id].parent;
    Unlink(id);
    --holes_;
    id = parent;
  }
}

void Shadow::Unlink(uint32_t id) {
  Node& node = nodes_[id];
  uint32_t* link =
      node.parent == kNone ? &roots_[node.name_space] : &nodes_[node.parent].first_child;
  while (*link != id) link = &nodes_[*link].next_sibling;
  *link = node.next_sibling;
  node.state = Node::State::kAbsent;
}

uint32_t Shadow::FindChild(uint32_t parent, uint32_t name_space,
                           absl::Span<const TokenKey> keys) const {
  for (uint32_t id = first_child(parent, name_space); id != kNone; id = nodes_[id].next_sibling) {
    const Node& child = nodes_[id];
    if (child.count == keys.size() && std::equal(keys.begin(), keys.end(), child.keys.begin())) {
      return id;
    }
  }
  return kNone;
}

uint32_t Shadow::FirstLonger(uint32_t parent, uint32_t name_space,
                             absl::Span<const TokenKey> keys) const {
  const auto before = [&](uint32_t a, uint32_t b) {
    const auto& [tokens_a, extras_a] = contents_[a];
    const auto& [tokens_b, extras_b] = contents_[b];
    for (size_t i = 0; i < std::min(tokens_a.size(), tokens_b.size()); ++i) {
      const auto rank = [i](const std::vector<TokenId>& tokens,
                            const std::vector<TokenExtra>& extras) {
        const TokenExtra extra = extras.empty() ? TokenExtra{} : extras[i];
        return std::tuple(tokens[i], extra.extra_id, extra.in_item, extra.digest,
                          extra.item_offset);
      };
      const auto rank_a = rank(tokens_a, extras_a), rank_b = rank(tokens_b, extras_b);
      if (rank_a != rank_b) return rank_a < rank_b;
    }
    return tokens_a.size() < tokens_b.size();
  };
  uint32_t first = kNone;
  for (uint32_t child = first_child(parent, name_space); child != kNone;
       child = nodes_[child].next_sibling) {
    const Node& node = nodes_[child];
    if (!node.cached() || node.count <= keys.size() ||
        !std::equal(keys.begin(), keys.end(), node.keys.begin())) {
      continue;
    }
    if (first == kNone || before(child, first)) first = child;
  }
  return first;
}

uint32_t Shadow::FindValue(Value value) const {
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    const Node& node = nodes_[id];
    if (node.in_tree() && node.values[node.count - 1] == value) return id;
  }
  return kNone;
}

bool Shadow::HasNearChildren(uint32_t id, Tier tier) const {
  for (uint32_t c = nodes_[id].first_child; c != kNone; c = nodes_[c].next_sibling) {
    if (nodes_[c].cached() && nodes_[c].tier <= tier) return true;
  }
  return false;
}

void Shadow::Compare(const std::vector<TreeEntry>& entries) const {
  SIM_CHECK(entries.size() == cached_count_, "law: window ", WindowName(window_), " has ",
            entries.size(), " blocks in the core's tree, ", cached_count_, " by the events");
  for (const TreeEntry& entry : entries) {
    const uint32_t id = entry.id.value();
    const Node& node = this->node(id);
    SIM_CHECK(node.cached(), "law: block ", id, " is cached, but not by the events");
    SIM_CHECK(node.parent == entry.parent.value() && node.hash == entry.hash &&
                  node.tier == entry.tier && node.priority == entry.priority &&
                  config_->name_spaces[node.name_space] == entry.name_space,
              "law: block ", id, " of window ", WindowName(window_), " is not what the events say");
    SIM_CHECK(entry.extras.empty() || entry.extras.size() == entry.tokens.size(), "block ", id,
              " has extras for some tokens only");
    const std::vector<TokenId> tokens = TokensOf(entry.key(), config_->tokens_per_block);
    SIM_CHECK(node.count == tokens.size(), "law: block ", id, " is longer than by the events");
    for (size_t i = 0; i < tokens.size(); ++i) {
      const TokenKey key =
          entry.extras.empty() ? KeyOf(tokens[i]) : KeyOf(tokens[i], entry.extras[i]);
      SIM_CHECK(key == node.keys[i], "law: block ", id, " has other tokens than by the events");
    }
  }
}

}  // namespace pagoda::sim
