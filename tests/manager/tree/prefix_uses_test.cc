// The prefixes that saved most: small trees made by hand, and random forests compared with a naive
// count.
#include "manager/tree/prefix_uses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint32_t kAtRoot = PrefixNode::kAtRoot;

PrefixNode Node(uint32_t parent, uint32_t match_ends) {
  return {.parent = parent, .generation = Generation{7}, .match_ends = match_ends};
}
// (last block, hits) of each.
std::vector<std::pair<uint32_t, uint64_t>> Top(const std::vector<PrefixNode>& nodes,
                                               size_t limit = 100) {
  std::vector<std::pair<uint32_t, uint64_t>> top;
  for (const UsedPrefix& prefix : TopPrefixes(nodes, limit)) {
    top.emplace_back(prefix.last.id.value(), prefix.hits);
  }
  return top;
}

TEST(PrefixUsesTest, NothingWasUsed) {
  EXPECT_THAT(Top({}), IsEmpty());
  EXPECT_THAT(Top({Node(kAtRoot, 0), Node(0, 0), PrefixNode{}}), IsEmpty());
}

TEST(PrefixUsesTest, APrefixIsCountedWithWhatGoesOnFromIt) {
  // 0 - 1 - 2, and 1 - 3: two questions after one system prompt.
  const std::vector<PrefixNode> nodes = {Node(kAtRoot, 0), Node(0, 4), Node(1, 3), Node(1, 2)};
  // 1: nine hits of two blocks; 2: three of three; 3: two of three. 0 is left out, because 1 always
  // follows it.
  EXPECT_THAT(Top(nodes), ElementsAre(Pair(1, 9), Pair(2, 3), Pair(3, 2)));
  EXPECT_THAT(Top(nodes, 1), ElementsAre(Pair(1, 9)));
  const UsedPrefix first = TopPrefixes(nodes, 1).front();
  EXPECT_EQ(first.blocks, 2u);
  EXPECT_EQ(first.first, (BlockRef{BlockId{0}, Generation{7}}));
  EXPECT_EQ(first.last, (BlockRef{BlockId{1}, Generation{7}}));
}

TEST(PrefixUsesTest, NineOfTenThatGoOnAreAllButTheSame) {
  EXPECT_THAT(Top({Node(kAtRoot, 1), Node(0, 9)}), ElementsAre(Pair(1, 9)));
  EXPECT_THAT(Top({Node(kAtRoot, 2), Node(0, 9)}), ElementsAre(Pair(1, 9), Pair(0, 11)));
}

TEST(PrefixUsesTest, WhatDoesNotFitTogetherIsLeftOut) {
  // 0 and 1 in a cycle, 2 below it; 3 below a block that is gone; 4 below one that never existed.
  EXPECT_THAT(Top({Node(1, 5), Node(0, 5), Node(1, 5), Node(5, 5), Node(99, 5), PrefixNode{},
                   Node(kAtRoot, 1)}),
              ElementsAre(Pair(6, 1)));
}

class RandomForestTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RandomForestTest, AgreesWithANaiveCount) {
  std::mt19937 random(GetParam());
  constexpr uint32_t kNodes = 200;
  // Ids in a random order, so that parents can come after their children.
  std::vector<uint32_t> ids(kNodes);
  for (uint32_t i = 0; i < kNodes; ++i) ids[i] = i;
  std::shuffle(ids.begin(), ids.end(), random);
  std::vector<PrefixNode> nodes(kNodes);
  for (uint32_t i = 0; i < kNodes; ++i) {
    const uint32_t parent = i == 0 || random() % 10 == 0 ? kAtRoot : ids[random() % i];
    nodes[ids[i]] = Node(parent, random() % 3 == 0 ? random() % 50 : 0);
  }
  std::vector<uint64_t> hits(kNodes), depth(kNodes);
  for (uint32_t id = 0; id < kNodes; ++id) {
    for (uint32_t above = id; above != kAtRoot; above = nodes[above].parent) {
      hits[above] += nodes[id].match_ends;
      ++depth[id];
    }
  }
  std::vector<std::tuple<int64_t, uint32_t, uint64_t>> expected;  // -saved, id, hits.
  for (uint32_t id = 0; id < kNodes; ++id) {
    bool goes_on = hits[id] == 0;
    for (uint32_t child = 0; child < kNodes; ++child) {
      goes_on |= nodes[child].parent == id && hits[child] * 10 >= hits[id] * 9;
    }
    if (!goes_on) expected.emplace_back(-static_cast<int64_t>(hits[id] * depth[id]), id, hits[id]);
  }
  std::sort(expected.begin(), expected.end());
  expected.resize(std::min<size_t>(expected.size(), 20));
  const std::vector<UsedPrefix> top = TopPrefixes(nodes, 20);
  ASSERT_EQ(top.size(), expected.size());
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(top[i].last.id.value(), std::get<1>(expected[i]));
    EXPECT_EQ(top[i].hits, std::get<2>(expected[i]));
    EXPECT_EQ(top[i].blocks, depth[top[i].last.id.value()]);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomForestTest, ::testing::Range(0u, 50u));

}  // namespace
}  // namespace pagoda
