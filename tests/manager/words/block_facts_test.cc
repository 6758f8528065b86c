#include "manager/words/block_facts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "manager/tree/block_store.h"
#include "manager/tree/prefix_tree.h"

namespace pagoda {
namespace {

ContentFacts At(uint32_t depth, uint32_t request_tokens = 0) {
  return {depth, request_tokens, ContentOrigin::kPrompt};
}

TEST(ContentFactsTest, DepthsAndLengthsAreLogarithmsRoundedDown) {
  EXPECT_EQ(At(1).log2_depth(), 0u);
  EXPECT_EQ(At(2).log2_depth(), 1u);
  EXPECT_EQ(At(3).log2_depth(), 1u);
  EXPECT_EQ(At(4).log2_depth(), 2u);
  EXPECT_EQ(At(1, 0).log2_request_tokens(), 0u);
  EXPECT_EQ(At(1, 1).log2_request_tokens(), 0u);
  EXPECT_EQ(At(1, 1023).log2_request_tokens(), 9u);
  EXPECT_EQ(At(1, 1024).log2_request_tokens(), 10u);
}

TEST(ContentFactsTest, TheLargestNumbersDoNotRunIntoOtherFacts) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  const ContentFacts facts(kMost, kMost, ContentOrigin::kReply);
  EXPECT_EQ(facts.log2_depth(), ContentFacts::kMaxLog2Depth);
  EXPECT_EQ(facts.log2_request_tokens(), 31u);
  EXPECT_EQ(facts.origin(), ContentOrigin::kReply);
  EXPECT_EQ(facts.bits() >> ContentFacts::kBits, 0u);
  EXPECT_EQ(At(kMost).log2_request_tokens(), 0u);
  EXPECT_EQ(At(1, kMost).log2_depth(), 0u);
  EXPECT_EQ(At(kMost, kMost).origin(), ContentOrigin::kPrompt);
}

TEST(ContentFactsTest, EveryNumberOfBitsComesBackFromTheTree) {
  BlockStore store({.tokens_per_block = TokensPerBlock(2), .num_ids = 1u << ContentFacts::kBits});
  PrefixTree tree(&store);
  const NodeRef root = tree.AcquireRoot({});
  for (uint32_t bits = 0; bits < store.num_ids(); ++bits) {
    const BlockId id = store.TakeId(BlockState::kCached);
    const uint32_t size = bits % 2 + 1;  // Tails, too.
    store.tokens(id)[0] = bits;
    store[id].token_count = size;
    tree.Insert(id, root, store.key(id), ContentFacts::FromBits(bits));
  }
  for (uint32_t i = 0; i < store.num_ids(); ++i) {
    const BlockId id{i};
    ASSERT_EQ(tree.facts(id).bits(), store.tokens(id)[0]);
    ASSERT_EQ(tree.FindChild(root, store.key(id)), id) << "facts are no part of the content";
    tree.SetFacts(id, At(i % 100 + 1));
    ASSERT_EQ(tree.facts(id), At(i % 100 + 1));
    ASSERT_EQ(tree.FindChild(root, store.key(id)), id);
  }
  tree.Erase(BlockId{3});
  EXPECT_EQ(tree.facts(BlockId{3}), ContentFacts());
}

}  // namespace
}  // namespace pagoda
