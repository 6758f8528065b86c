#include "events/shadow_tree.h"

#include <gtest/gtest.h>

namespace pagoda {
namespace {

const BlockHash kRoot = HashNamespace({});
const std::vector<TokenId> kFirst = {1, 2}, kSecond = {3, 4};
const BlockHash kFirstHash = HashBlock(kRoot, kFirst);
const BlockHash kSecondHash = HashBlock(kFirstHash, kSecond);

Event Stored() {
  return {.revision = Revision{1},
          .what = StoredEvent{.blocks = {{.id = BlockId{5}, .hash = kFirstHash, .token_count = 2},
                                         {.id = BlockId{9}, .hash = kSecondHash, .token_count = 2}},
                              .tokens = {1, 2, 3, 4}}};
}

Event Removed(uint64_t revision, std::vector<BlockId> ids, std::vector<BlockHash> hashes) {
  return {.revision = Revision{revision}, .what = RemovedEvent{.blocks = ids, .hashes = hashes}};
}

TEST(ShadowTreeTest, AChainIsStoredWithItsParents) {
  ShadowTree tree;
  ASSERT_TRUE(tree.Apply(Stored()).ok());
  const std::vector<TreeEntry> entries = tree.Dump(kFullAttention);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].parent, kNoBlock);
  EXPECT_EQ(entries[1].parent, BlockId{5});
  EXPECT_EQ(entries[1].tokens, kSecond);
}

TEST(ShadowTreeTest, RemovesLeavesFirst) {
  ShadowTree tree;
  ASSERT_TRUE(tree.Apply(Stored()).ok());
  EXPECT_FALSE(ShadowTree(tree).Apply(Removed(2, {BlockId{5}}, {kFirstHash})).ok());
  EXPECT_TRUE(tree.Apply(Removed(2, {BlockId{9}, BlockId{5}}, {kSecondHash, kFirstHash})).ok());
  EXPECT_TRUE(tree.Dump(kFullAttention).empty());
}

TEST(ShadowTreeTest, RefusesWhatDoesNotFit) {
  ShadowTree tree;
  ASSERT_TRUE(tree.Apply(Stored()).ok());
  Event again = Stored();
  EXPECT_FALSE(ShadowTree(tree).Apply(again).ok()) << "revision 1 after revision 1";
  again.revision = Revision{2};
  EXPECT_FALSE(ShadowTree(tree).Apply(again).ok()) << "stored twice";
  EXPECT_FALSE(ShadowTree(tree).Apply(Removed(3, {BlockId{9}}, {kSecondHash})).ok()) << "a hole";
  EXPECT_FALSE(ShadowTree(tree).Apply(Removed(2, {BlockId{9}}, {kFirstHash})).ok()) << "wrong hash";
  EXPECT_FALSE(ShadowTree(tree).Apply(Removed(2, {BlockId{1}}, {kFirstHash})).ok()) << "not there";

  Event wrong_tokens = Stored();
  std::get<StoredEvent>(wrong_tokens.what).tokens[3] = 7;
  EXPECT_FALSE(ShadowTree().Apply(wrong_tokens).ok()) << "a hash of other tokens";
  Event orphan = Stored();
  std::get<StoredEvent>(orphan.what).parent = BlockId{3};
  std::get<StoredEvent>(orphan.what).parent_hash = kFirstHash;
  EXPECT_FALSE(ShadowTree().Apply(orphan).ok()) << "below nothing";
}

TEST(ShadowTreeTest, AClearedWindowIsEmpty) {
  ShadowTree tree;
  ASSERT_TRUE(tree.Apply(Stored()).ok());
  ASSERT_TRUE(tree.Apply({.revision = Revision{2},
                          .what = RemovedEvent{.reason = RemovalReason::kCleared,
                                               .scope = RemovedEvent::Scope::kWindow}})
                  .ok());
  EXPECT_TRUE(tree.Dump(kFullAttention).empty());
}

}  // namespace
}  // namespace pagoda
