// The prefix tree and a naive model of it, with the same random operations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "manager/tree/prefix_tree.h"

namespace pagoda {
namespace {

using ::testing::ElementsAreArray;

using Closest = PrefixTree::Closest;

// A key that owns its content.
struct Content {
  std::vector<TokenId> tokens;
  std::vector<TokenExtra> extras;

  BlockKey key() const { return {tokens, extras}; }
};

// Children in a map, by content. Nodes are named by a number.
class NaiveTree {
 public:
  using Token = std::tuple<TokenId, uint64_t, bool, ItemDigest, uint32_t>;
  using Key = std::vector<Token>;  // Its order is the order of keys.

  static Key KeyOf(const BlockKey& key) {
    Key all;
    for (size_t i = 0; i < key.tokens.size(); ++i) {
      const TokenExtra extra = key.has_extras() ? key.extras[i] : TokenExtra{};
      all.emplace_back(key.tokens[i], extra.extra_id, extra.in_item, extra.digest,
                       extra.item_offset);
    }
    return all;
  }
  static uint64_t Name(NodeRef node) {
    return node.is_root() ? uint64_t{1} << 32 | node.root() : node.block().value();
  }
  static size_t Common(const Key& a, const Key& b) {
    size_t i = 0;
    while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
    return i;
  }

  std::map<Key, BlockId>& Children(NodeRef node) { return children_[Name(node)]; }

 private:
  std::map<uint64_t, std::map<Key, BlockId>> children_;
};

struct RandomCase {
  uint32_t tokens_per_block;
  uint32_t extras_percent;
  uint32_t steps;
  uint32_t check_every;
};

void PrintTo(const RandomCase& c, std::ostream* out) {
  *out << c.tokens_per_block << " tokens a block, " << c.extras_percent << "% with extras";
}

class RandomPrefixTreeTest : public ::testing::TestWithParam<std::tuple<RandomCase, uint32_t>> {
 protected:
  static constexpr uint32_t kIds = 300;
  static constexpr uint32_t kNamespaces = 3;

  uint32_t Pick(size_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Chance(uint32_t percent) { return Pick(100) < percent; }

  static NamespaceKey Space(uint32_t i) { return {.cache_salt = std::string(i, 's')}; }

  TokenExtra RandomExtra() {
    TokenExtra extra;
    if (Chance(50)) extra.extra_id = Pick(3);
    if (Chance(50)) {
      extra.in_item = true;
      extra.digest[Pick(4)] = Pick(3);
      extra.item_offset = Pick(2);
    }
    return extra;
  }
  // Often a variation of a child's content, else tokens of a small alphabet.
  Content RandomContent(NodeRef near) {
    Content content;
    const std::vector<BlockId> siblings = tree_.Children(near);
    if (!siblings.empty() && Chance(70)) {
      const BlockKey key = store_.key(siblings[Pick(siblings.size())]);
      content.tokens.assign(key.tokens.begin(), key.tokens.end());
      content.extras.assign(key.extras.begin(), key.extras.end());
      if (Chance(30)) content.tokens.resize(1 + Pick(tokens_per_block_));
      if (Chance(60)) content.tokens[Pick(content.tokens.size())] = Pick(3);
    } else {
      content.tokens.resize(Chance(60) ? tokens_per_block_ : 1 + Pick(tokens_per_block_));
      for (TokenId& token : content.tokens) token = Pick(3) * (Chance(10) ? 0x1234'5678 : 1);
    }
    if (Chance(case_.extras_percent) || !content.extras.empty()) {
      content.extras.resize(content.tokens.size());
      if (Chance(50)) content.extras[Pick(content.extras.size())] = RandomExtra();
    }
    return content;
  }
  // A root, which is acquired for this, or a full node.
  NodeRef RandomParent() {
    if (full_.empty() || Chance(40)) {
      const NodeRef root = tree_.AcquireRoot(Space(Pick(kNamespaces)));
      acquired_.push_back(root);
      return root;
    }
    return NodeRef::Block(full_[Pick(full_.size())]);
  }
  void ReleaseSomeRoots(uint32_t percent) {
    for (std::vector<NodeRef>* roots : {&acquired_, &cut_off_roots_}) {
      std::vector<NodeRef> kept;
      for (const NodeRef root : *roots) {
        if (Chance(percent)) {
          tree_.ReleaseRoot(root);
        } else {
          kept.push_back(root);
        }
      }
      *roots = kept;
    }
  }

  void Insert() {
    if (store_.free_ids() == 0) return;
    const NodeRef parent = RandomParent();
    const Content content = RandomContent(parent);
    auto& siblings = naive_.Children(parent);
    const NaiveTree::Key key = NaiveTree::KeyOf(content.key());
    if (siblings.contains(key)) return;
    const BlockId id = store_.TakeId(Chance(80) ? BlockState::kCached : BlockState::kHole);
    Block& block = store_[id];
    std::copy(content.tokens.begin(), content.tokens.end(), store_.tokens(id).begin());
    store_.SetExtras(id, content.extras);
    block.token_count = content.tokens.size();
    block.tier_value = Pick(2);
    tree_.Insert(id, parent);
    tree_.MoveChild(id, PrefixTree::kNowhere, PlaceOf(block));
    siblings[key] = id;
    parents_[id] = parent;
    all_.push_back(id);
    if (!parent.is_root() && cut_off_.contains(parent.block())) cut_off_.insert(id);
    if (content.tokens.size() == tokens_per_block_) full_.push_back(id);
  }
  void Erase() {
    if (all_.empty()) return;
    const BlockId id = all_[Pick(all_.size())];
    if (!naive_.Children(NodeRef::Block(id)).empty()) return;
    naive_.Children(parents_[id]).erase(NaiveTree::KeyOf(store_.key(id)));
    tree_.MoveChild(id, PlaceOf(store_[id]), PrefixTree::kNowhere);
    tree_.Erase(id);
    const uint32_t ends = match_ends_.contains(id) ? match_ends_.at(id) : 0;
    const NodeRef parent = parents_[id];
    Forget(id);
    if (ends != 0 && !parent.is_root()) AddMatchEnds(parent.block(), ends);
    std::erase(all_, id);
    std::erase(full_, id);
  }
  void Forget(BlockId id) {
    parents_.erase(id);
    match_ends_.erase(id);
    cut_off_.erase(id);
    store_[id].refs = 0;
    store_.ReleaseId(id);
  }
  void CutOff() {
    tree_.CutOff();
    cut_off_ = {all_.begin(), all_.end()};
    cut_off_roots_.insert(cut_off_roots_.end(), acquired_.begin(), acquired_.end());
    acquired_.clear();
    for (uint32_t i = 0; i < kNamespaces; ++i) ASSERT_EQ(tree_.FindRoot(Space(i)), std::nullopt);
  }
  void CountMatchEnd() {
    if (full_.empty()) return;
    const BlockId id = full_[Pick(full_.size())];
    tree_.CountMatchEnd(id);
    AddMatchEnds(id, 1);
  }
  void AddMatchEnds(BlockId id, uint32_t count) {
    if (match_ends_.contains(id) || match_ends_.size() < tree_.max_match_ends()) {
      match_ends_[id] += count;
      return;
    }
    for (int steps = 0; steps < 64 && !parents_[id].is_root(); ++steps) {
      id = parents_[id].block();
      if (!match_ends_.contains(id)) continue;
      match_ends_[id] += count;
      return;
    }
  }
  static PrefixTree::Place PlaceOf(const Block& block) {
    return block.state() == BlockState::kCached ? PrefixTree::Place(block.tier())
                                                : PrefixTree::kNowhere;
  }
  // A block moves to another tier, a hole gets bytes, or a cached block loses them.
  void Move() {
    if (all_.empty()) return;
    const BlockId id = all_[Pick(all_.size())];
    Block& block = store_[id];
    const PrefixTree::Place from = PlaceOf(block);
    block.tier_value = Pick(2);
    if (Chance(5)) block.set_state(BlockState::kHole);
    if (Chance(20)) block.set_state(BlockState::kCached);
    tree_.MoveChild(id, from, PlaceOf(block));
  }

  void CheckFinding() {
    const NodeRef parent = RandomParent();
    const Content content = RandomContent(parent);
    const NaiveTree::Key key = NaiveTree::KeyOf(content.key());
    const auto& siblings = naive_.Children(parent);
    const auto same = siblings.find(key);
    ASSERT_EQ(tree_.FindChild(parent, content.key()),
              same == siblings.end() ? kNoBlock : same->second);

    const auto is_cached = [&](BlockId id) { return store_[id].state() == BlockState::kCached; };
    size_t most = 0;
    for (const auto& [sibling, id] : siblings) {
      if (is_cached(id)) most = std::max(most, NaiveTree::Common(sibling, key));
    }
    const Closest closest = tree_.FindClosest(parent, content.key());
    ASSERT_EQ(closest.tokens, most);
    if (most == 0) {
      ASSERT_EQ(closest.id, kNoBlock);
    } else {
      const auto exact = siblings.find({key.begin(), key.begin() + most});
      const NaiveTree::Key found = NaiveTree::KeyOf(store_.key(closest.id));
      ASSERT_EQ(siblings.at(found), closest.id);
      ASSERT_EQ(NaiveTree::Common(found, key), most);
      ASSERT_TRUE(is_cached(closest.id));
      ASSERT_TRUE(exact == siblings.end() || !is_cached(exact->second) ||
                  closest.id == exact->second);
    }

    std::vector<BlockId> beginnings;
    for (size_t size = key.size(); size > 0; --size) {
      const auto found = siblings.find({key.begin(), key.begin() + size});
      if (found != siblings.end()) beginnings.push_back(found->second);
    }
    ASSERT_THAT(tree_.Beginnings(parent, content.key()), ElementsAreArray(beginnings));

    const size_t prefix = Pick(key.size() + 1);
    std::vector<BlockId> expected;
    for (const auto& [sibling, id] : siblings) {
      if (sibling.size() >= prefix && NaiveTree::Common(sibling, key) >= prefix) {
        expected.push_back(id);
      }
    }
    ASSERT_THAT(tree_.Children(parent, content.key().First(prefix)), ElementsAreArray(expected));
  }

  void CheckChildren(NodeRef node) {
    const auto& expected = naive_.Children(node);
    std::vector<BlockId> in_order;
    for (const auto& [key, id] : expected) in_order.push_back(id);
    ASSERT_THAT(tree_.Children(node), ElementsAreArray(in_order));
    ASSERT_EQ(tree_.has_children(node), !expected.empty());
    uint32_t primary = 0;
    for (const BlockId id : in_order) {
      if (PlaceOf(store_[id]) == kPrimaryTier) ++primary;
      ASSERT_EQ(tree_.parent(id), node);
      ASSERT_EQ(tree_.FindChild(node, store_.key(id)), id);
      ASSERT_EQ(tree_.hash(id), HashBlock(tree_.hash(node), store_.key(id)));
    }
    if (!node.is_root()) {
      ASSERT_EQ(tree_.primary_children(node.block()), primary);
      ASSERT_EQ(tree_.has_children(node.block()), !expected.empty());
    }
  }
  void CheckAll() {
    for (uint32_t i = 0; i < kNamespaces; ++i) {
      const std::optional<NodeRef> root = tree_.FindRoot(Space(i));
      const auto is_it = [&](NodeRef node) { return tree_.key(node) == Space(i); };
      const bool used = std::any_of(acquired_.begin(), acquired_.end(), is_it);
      if (!root.has_value()) {
        ASSERT_FALSE(used);
        continue;
      }
      ASSERT_EQ(tree_.key(*root), Space(i));
      ASSERT_EQ(tree_.hash(*root), HashNamespace(Space(i)));
      ASSERT_TRUE(used || tree_.has_children(*root));
      CheckChildren(*root);
    }
    for (const BlockId id : all_) {
      CheckChildren(NodeRef::Block(id));
      ASSERT_EQ(tree_.match_ends(id), match_ends_.contains(id) ? match_ends_.at(id) : 0);
      ASSERT_EQ(tree_.FindRoot(tree_.key(tree_.RootOf(id))) == tree_.RootOf(id),
                !cut_off_.contains(id));
      if (!tree_.has_children(id)) continue;
      ASSERT_EQ(tree_.parent(tree_.AnyChild(id)), NodeRef::Block(id));
    }
  }

  const RandomCase case_ = std::get<0>(GetParam());
  const uint32_t tokens_per_block_ = case_.tokens_per_block;
  std::mt19937_64 random_{std::get<1>(GetParam())};
  BlockStore store_{{.tokens_per_block = TokensPerBlock(tokens_per_block_), .num_ids = kIds}};
  PrefixTree tree_{&store_};
  NaiveTree naive_;
  std::vector<NodeRef> acquired_, cut_off_roots_;
  std::set<BlockId> cut_off_;
  std::vector<BlockId> all_, full_;
  std::map<BlockId, NodeRef> parents_;
  std::map<BlockId, uint32_t> match_ends_;
};

TEST_P(RandomPrefixTreeTest, AgreesWithANaiveModel) {
  for (uint32_t step = 0; step < case_.steps; ++step) {
    // Grows, and shrinks, for some hundred steps each.
    const uint32_t insert_percent = step / 400 % 2 == 0 ? 60 : 25;
    if (Chance(insert_percent)) {
      Insert();
    } else {
      Erase();
    }
    if (Chance(20)) Move();
    if (Chance(30)) CountMatchEnd();
    if (Chance(10)) ReleaseSomeRoots(50);
    if (Pick(2000) == 0) CutOff();
    CheckFinding();
    if (step % case_.check_every == 0) CheckAll();
    if (HasFatalFailure()) {
      FAIL() << "at step " << step;
    }
  }
  ReleaseSomeRoots(100);
  while (!all_.empty() && !HasFatalFailure()) Erase();
  CheckAll();
  for (uint32_t i = 0; i < kNamespaces; ++i) EXPECT_EQ(tree_.FindRoot(Space(i)), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, RandomPrefixTreeTest,
    ::testing::Combine(::testing::Values(RandomCase{1, 0, 4000, 8}, RandomCase{1, 50, 4000, 8},
                                         RandomCase{2, 0, 4000, 8}, RandomCase{2, 30, 4000, 8},
                                         RandomCase{4, 5, 4000, 8}, RandomCase{16, 0, 4000, 8},
                                         RandomCase{16, 20, 4000, 8}, RandomCase{1024, 0, 400, 100},
                                         RandomCase{1024, 10, 400, 100}),
                       ::testing::Range(uint32_t{0}, uint32_t{3})));

}  // namespace
}  // namespace pagoda
