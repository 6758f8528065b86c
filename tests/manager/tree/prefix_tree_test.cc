#include "manager/tree/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Closest = PrefixTree::Closest;

// A key that owns its content.
struct Content {
  std::vector<TokenId> tokens;
  std::vector<TokenExtra> extras = {};

  BlockKey key() const { return {tokens, extras}; }
};

// A tree with the store below it.
struct Bed {
  Bed(uint32_t ids, uint32_t tokens_per_block)
      : store({.tokens_per_block = TokensPerBlock(tokens_per_block), .num_ids = ids}),
        tree(&store) {}

  BlockId Take(const Content& content, BlockState state = BlockState::kCached) {
    const BlockId id = store.TakeId(state);
    std::copy(content.tokens.begin(), content.tokens.end(), store.tokens(id).begin());
    store.SetExtras(id, content.extras);
    store[id].token_count = content.tokens.size();
    return id;
  }
  BlockId Insert(const Content& content, NodeRef parent) {
    const BlockId id = Take(content);
    tree.Insert(id, parent);
    return id;
  }
  void Erase(BlockId id) {
    tree.Erase(id);
    store[id].refs = 0;
    store.ReleaseId(id);
  }

  BlockStore store;
  PrefixTree tree;
};

const NamespaceKey kBase;
const NamespaceKey kSalted = {.cache_salt = "salt"};

TEST(PrefixTreeRootTest, LivesAsLongAsItHasUsersOrChildren) {
  Bed bed(4, 1);
  EXPECT_EQ(bed.tree.FindRoot(kSalted), std::nullopt);
  const NodeRef root = bed.tree.AcquireRoot(kSalted);
  EXPECT_EQ(bed.tree.AcquireRoot(kSalted), root) << "now with two users";
  EXPECT_EQ(bed.tree.key(root), kSalted);
  EXPECT_EQ(bed.tree.hash(root), HashNamespace(kSalted));
  EXPECT_FALSE(bed.tree.has_children(root));
  const BlockId child = bed.Insert({{1}}, root);
  EXPECT_TRUE(bed.tree.has_children(root));
  bed.tree.ReleaseRoot(root);
  bed.Erase(child);
  EXPECT_EQ(bed.tree.FindRoot(kSalted), root) << "of its second user";
  bed.Insert({{2}}, root);
  bed.tree.ReleaseRoot(root);
  EXPECT_EQ(bed.tree.FindRoot(kSalted), root) << "of its child";
  bed.Erase(bed.tree.FindChild(root, Content{{2}}.key()));
  EXPECT_EQ(bed.tree.FindRoot(kSalted), std::nullopt);
}

TEST(PrefixTreeRootTest, KeepsNamespacesApart) {
  Bed bed(8, 1);
  const NodeRef base = bed.tree.AcquireRoot(kBase);
  const NodeRef salted = bed.tree.AcquireRoot(kSalted);
  const BlockId a = bed.Insert({{1}}, base);
  const BlockId b = bed.Insert({{1}}, salted);
  const BlockId below = bed.Insert({{1}}, NodeRef::Block(b));
  EXPECT_EQ(bed.tree.FindChild(base, Content{{1}}.key()), a);
  EXPECT_EQ(bed.tree.FindChild(salted, Content{{1}}.key()), b);
  EXPECT_NE(bed.tree.hash(a), bed.tree.hash(b));
  EXPECT_EQ(bed.tree.RootOf(a), base);
  EXPECT_EQ(bed.tree.RootOf(below), salted);
}

TEST(PrefixTreeTest, HashesAreChained) {
  Bed bed(2, 2);
  const NodeRef root = bed.tree.AcquireRoot(kSalted);
  const Content first = {{1, 2}};
  const Content second = {{3}, {{.extra_id = 9}}};
  const BlockId parent = bed.Insert(first, root);
  const BlockId child = bed.Insert(second, NodeRef::Block(parent));
  EXPECT_EQ(bed.tree.hash(parent), HashBlock(HashNamespace(kSalted), first.key()));
  EXPECT_EQ(bed.tree.hash(child), HashBlock(bed.tree.hash(parent), second.key()));
}

TEST(PrefixTreeTest, ExtrasTellChildrenApart) {
  Bed bed(8, 2);
  const NodeRef root = bed.tree.AcquireRoot(kBase);
  const std::vector<TokenId> tokens = {1, 2};
  const std::vector<TokenExtra> kinds = {
      {},
      {.extra_id = 1},
      {.extra_id = uint64_t{1} << 63},
      {.digest = {0, 0, 1, 0}, .in_item = true},
      {.digest = {0, 0, 1, 0}, .item_offset = 1, .in_item = true},
      {.digest = {0, 0, 0, 1}, .in_item = true}};
  std::vector<BlockId> ids;
  for (const TokenExtra& kind : kinds) ids.push_back(bed.Insert({tokens, {{}, kind}}, root));
  for (size_t i = 0; i < kinds.size(); ++i) {
    EXPECT_EQ(bed.tree.FindChild(root, Content{tokens, {{}, kinds[i]}}.key()), ids[i]);
  }
  EXPECT_EQ(bed.tree.FindChild(root, Content{tokens}.key()), ids[0]);
  const Content other = {tokens, {{}, {.extra_id = 2}}};
  EXPECT_EQ(bed.tree.FindChild(root, other.key()), kNoBlock);
  EXPECT_EQ(bed.tree.FindClosest(root, other.key()).tokens, 1);
}

TEST(PrefixTreeTest, ClosestPassesSoManyHolesAndNoMore) {
  const uint32_t most = PrefixTree::kMostHolesPassed;
  Bed bed(most + 3, 4);
  const NodeRef root = bed.tree.AcquireRoot(kBase);
  const auto insert_hole = [&](TokenId last) {
    bed.store[bed.Insert({{1, 2, 3, last}}, root)].set_state(BlockState::kHole);
  };
  const BlockId cached = bed.Insert({{1, 7, 7, 7}}, root);
  for (TokenId i = 0; i < most; ++i) insert_hole(i + 10);
  const Content wanted = {{1, 2, 3, 10}};  // One hole is the key's own, the others are passed.
  EXPECT_EQ(bed.tree.FindClosest(root, wanted.key()).id, cached);
  EXPECT_EQ(bed.tree.FindClosest(root, wanted.key()).tokens, 1u);
  insert_hole(most + 10);
  EXPECT_EQ(bed.tree.FindClosest(root, wanted.key()).id, kNoBlock);
}

TEST(PrefixTreeTest, ClosestSharesMostAndIsPreferablyATail) {
  Bed bed(8, 4);
  const NodeRef root = bed.tree.AcquireRoot(kBase);
  EXPECT_EQ(bed.tree.FindClosest(root, Content{{1, 2, 3, 4}}.key()).id, kNoBlock);
  const BlockId full = bed.Insert({{1, 2, 3, 4}}, root);
  const BlockId other = bed.Insert({{5, 6, 7, 8}}, root);
  const auto closest = [&](const Content& content) {
    const Closest found = bed.tree.FindClosest(root, content.key());
    return std::pair(found.id, found.tokens);
  };
  EXPECT_EQ(closest({{1, 2, 9, 9}}), std::pair(full, 2u));
  EXPECT_EQ(closest({{1, 2, 3}}), std::pair(full, 3u));
  EXPECT_EQ(closest({{5, 6, 7, 8}}), std::pair(other, 4u));
  EXPECT_EQ(closest({{9, 6, 7, 8}}), std::pair(kNoBlock, 0u));
  EXPECT_EQ(closest({{}}), std::pair(kNoBlock, 0u));
  const BlockId tail = bed.Insert({{1, 2}}, root);
  EXPECT_EQ(closest({{1, 2, 9, 9}}), std::pair(tail, 2u));
  EXPECT_EQ(closest({{1, 2}}), std::pair(tail, 2u));
  EXPECT_EQ(closest({{1, 2, 3, 9}}), std::pair(full, 3u));
  EXPECT_EQ(closest({{1, 7}}), std::pair(bed.Insert({{1}}, root), 1u));
}

TEST(PrefixTreeTest, ChildrenComeInTheOrderOfTheirKeys) {
  Bed bed(8, 2);
  const NodeRef root = bed.tree.AcquireRoot(kBase);
  const TokenId most = std::numeric_limits<TokenId>::max();
  const BlockId e = bed.Insert({{most, 0}}, root);
  const BlockId b = bed.Insert({{1, 0}}, root);
  const BlockId c = bed.Insert({{1, 0}, {{}, {.extra_id = 1}}}, root);
  const BlockId a = bed.Insert({{1}}, root);
  const BlockId d = bed.Insert({{1, most}}, root);
  EXPECT_THAT(bed.tree.Children(root), ElementsAre(a, b, c, d, e));
  EXPECT_THAT(bed.tree.Children(root, Content{{1}}.key()), ElementsAre(a, b, c, d));
  EXPECT_THAT(bed.tree.Children(root, Content{{1, 0}}.key()), ElementsAre(b));
  EXPECT_THAT(bed.tree.Children(root, Content{{2}}.key()), IsEmpty());
  EXPECT_THAT(bed.tree.Children(NodeRef::Block(b)), IsEmpty());
}

TEST(PrefixTreeTest, WhatIsCutOffIsNotFoundAndKeepsItsRootUntilItHasGone) {
  Bed bed(8, 1);
  const NodeRef used = bed.tree.AcquireRoot(kBase);
  const NodeRef unused = bed.tree.AcquireRoot(kSalted);
  const BlockId a = bed.Insert({{1}}, used);
  const BlockId below = bed.Insert({{1}}, NodeRef::Block(a));
  const BlockId salted = bed.Insert({{1}}, unused);
  bed.tree.ReleaseRoot(unused);
  bed.tree.CutOff();
  EXPECT_EQ(bed.tree.FindRoot(kBase), std::nullopt);
  EXPECT_EQ(bed.tree.FindRoot(kSalted), std::nullopt);
  EXPECT_EQ(bed.tree.key(bed.tree.RootOf(salted)), kSalted);
  EXPECT_EQ(bed.tree.FindChild(used, Content{{1}}.key()), a) << "it is a tree still";

  const NodeRef next = bed.tree.AcquireRoot(kBase);
  EXPECT_NE(next, used);
  EXPECT_EQ(bed.tree.FindRoot(kBase), next);
  const BlockId again = bed.Insert({{1}}, next);
  for (const BlockId id : {below, a, salted}) bed.Erase(id);
  bed.tree.ShareRoot(used);
  bed.tree.ReleaseRoot(used);
  bed.tree.ReleaseRoot(used);
  EXPECT_EQ(bed.tree.FindRoot(kBase), next) << "the earlier root goes alone";
  EXPECT_EQ(bed.tree.FindRoot(kSalted), std::nullopt);
  EXPECT_THAT(bed.tree.Children(next), ElementsAre(again));
  bed.Erase(again);
  bed.tree.ReleaseRoot(next);
  EXPECT_EQ(bed.tree.FindRoot(kBase), std::nullopt);
}

TEST(PrefixTreeDeathTest, RefusesWhatBreaksItsInvariants) {
  Bed bed(8, 2);
  const NodeRef root = bed.tree.AcquireRoot(kBase);
  const BlockId full = bed.Insert({{1, 2}}, root);
  const BlockId tail = bed.Insert({{3}}, root);
  const BlockId child = bed.Insert({{1, 2}}, NodeRef::Block(full));
  EXPECT_DEATH(bed.Insert({{1}}, NodeRef::Block(tail)), "rule 12");
  EXPECT_DEATH(bed.Insert({{1, 2}}, root), "rule 10");
  EXPECT_DEATH(bed.Insert({{3}}, root), "rule 10");
  EXPECT_DEATH(bed.Insert({{}}, root), "has content");
  EXPECT_DEATH(bed.tree.Erase(full), "rule 13");
  EXPECT_DEATH(bed.tree.Erase(bed.Take({{7, 8}})), "is in it");
  const BlockId outside = bed.Take({{7, 8}}, BlockState::kPrivate);
  EXPECT_DEATH(bed.Insert({{1}}, NodeRef::Block(outside)), "rule 12");
  bed.Erase(child);
  bed.tree.ReleaseRoot(root);
  EXPECT_DEATH(bed.tree.ReleaseRoot(root), "by its users");
}

// Children that differ one bit after another: the deepest possible tree of siblings.
TEST(PrefixTreeTest, DeepSiblingsNeedNoStack) {
  constexpr uint32_t kSiblings = 4000;
  constexpr uint32_t kTokens = 128;
  Bed bed(kSiblings, kTokens);
  const NodeRef root = bed.tree.AcquireRoot(kBase);
  std::vector<BlockId> by_order(kSiblings);
  for (uint32_t i = 0; i < kSiblings; ++i) {
    Content content{std::vector<TokenId>(kTokens)};
    content.tokens[i / 32] = uint32_t{1} << (31 - i % 32);
    by_order[kSiblings - 1 - i] = bed.Insert(content, root);
  }
  EXPECT_EQ(bed.tree.Children(root), by_order);
  for (const BlockId id : by_order) EXPECT_EQ(bed.tree.FindChild(root, bed.store.key(id)), id);
  for (const BlockId id : by_order) bed.Erase(id);
  EXPECT_FALSE(bed.tree.has_children(root));
}

// Keys of up to three tokens, so that each is a prefix of others.
std::vector<Content> NestedContents() {
  std::vector<Content> contents;
  for (TokenId a = 0; a < 3; ++a) {
    contents.push_back({{a}});
    for (TokenId b = 0; b < 3; ++b) {
      contents.push_back({{a, b}});
      for (TokenId c = 0; c < 3; ++c) contents.push_back({{a, b, c}});
    }
  }
  return contents;
}

TEST(PrefixTreeTest, SiblingsLeaveInAnyOrder) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    std::vector<Content> contents = NestedContents();
    std::shuffle(contents.begin(), contents.end(), random);
    Bed bed(contents.size(), 4);
    const NodeRef root = bed.tree.AcquireRoot(kBase);
    std::map<std::vector<TokenId>, BlockId> left;
    for (const Content& content : contents) left[content.tokens] = bed.Insert(content, root);
    std::shuffle(contents.begin(), contents.end(), random);
    for (const Content& content : contents) {
      bed.Erase(left[content.tokens]);
      left.erase(content.tokens);
      std::vector<BlockId> in_order;
      for (const auto& [tokens, id] : left) {
        in_order.push_back(id);
        ASSERT_EQ(bed.tree.FindChild(root, {tokens}), id);
      }
      ASSERT_EQ(bed.tree.Children(root), in_order);
      ASSERT_EQ(bed.tree.FindChild(root, content.key()), kNoBlock);
    }
  }
}

TEST(PrefixTreeTest, AnswersAreTheSameWhateverTheOrderOfInsertions) {
  std::mt19937_64 random(1);
  std::vector<Content> contents;
  for (uint32_t i = 0; i < 256; ++i) {
    contents.push_back({{i >> 6 & 3, i >> 4 & 3, i >> 2 & 3, i & 3}});
  }
  const auto answers = [&] {
    Bed bed(256, 4);
    const NodeRef root = bed.tree.AcquireRoot(kBase);
    for (size_t i = 0; i < 128; ++i) bed.Insert(contents[i], root);
    for (size_t i = 128; i < 256; ++i) {  // Children come and go. The first 128 stay.
      const BlockId gone = bed.Insert(contents[i], root);
      if (i % 2 == 0) bed.Erase(gone);
    }
    for (size_t i = 129; i < 256; i += 2) {
      bed.Erase(bed.tree.FindChild(root, contents[i].key()));
    }
    std::vector<std::vector<TokenId>> found;
    for (TokenId token = 0; token < 4; ++token) {
      const std::vector<TokenId> tokens = {token, 9, 9, 9};
      const Closest closest = bed.tree.FindClosest(root, {tokens});
      if (closest.id == kNoBlock) continue;
      const auto all = bed.store.tokens(closest.id);
      found.emplace_back(all.begin(), all.end());
    }
    return found;
  };
  const std::vector<std::vector<TokenId>> expected = answers();
  EXPECT_FALSE(expected.empty());
  for (int i = 0; i < 20; ++i) {
    std::shuffle(contents.begin(), contents.begin() + 128, random);
    std::shuffle(contents.begin() + 128, contents.end(), random);
    EXPECT_EQ(answers(), expected);
  }
}

// --- Many siblings ---

class ManySiblings {
 public:
  explicit ManySiblings(uint32_t siblings) : bed_(siblings, 16), root_(bed_.tree.AcquireRoot({})) {
    for (uint32_t i = 0; i < siblings; ++i) ids_.push_back(bed_.Insert(RandomContent(), root_));
  }

  // The least nanoseconds of a find, an erase and an insert together.
  double Measure() {
    constexpr size_t kOps = 500;
    double least = std::numeric_limits<double>::infinity();
    for (int repetition = 0; repetition < 7; ++repetition) {
      std::shuffle(ids_.begin(), ids_.end(), random_);
      size_t found = 0;
      const auto begin = std::chrono::steady_clock::now();
      for (size_t i = 0; i < kOps; ++i) {
        found += bed_.tree.FindChild(root_, bed_.store.key(ids_[i])) == ids_[i] ? 1 : 0;
      }
      for (size_t i = 0; i < kOps; ++i) bed_.tree.Erase(ids_[i]);
      for (size_t i = 0; i < kOps; ++i) bed_.tree.Insert(ids_[i], root_);
      const std::chrono::duration<double, std::nano> time =
          std::chrono::steady_clock::now() - begin;
      EXPECT_EQ(found, kOps);
      least = std::min(least, time.count() / kOps);
    }
    return least;
  }

 private:
  Content RandomContent() {
    Content content{std::vector<TokenId>(16)};
    for (TokenId& token : content.tokens) token = static_cast<TokenId>(random_() % 150'000);
    return content;
  }

  std::mt19937_64 random_{1};
  Bed bed_;
  NodeRef root_;
  std::vector<BlockId> ids_;
};

TEST(PrefixTreeTest, ManySiblingsStayFast) {
  const double few = ManySiblings(1000).Measure();
  const double many = ManySiblings(100'000).Measure();
  std::cout << "find, erase and insert: " << few << " ns among 1,000 siblings, " << many
            << " ns among 100,000\n";
  EXPECT_LT(many, 40 * few) << "a scan would take 100 times as long";
}

}  // namespace
}  // namespace pagoda
