// How many blocks sequences take: predicted (capacity questions), while they run, and afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pools/sizing.h"
#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

class CapacityTest : public ConformanceTest {
 protected:
  WindowCapacity Query(QueryCapacity query) {
    const auto answer = Run(std::move(query));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->windows.front() : WindowCapacity{};
  }
  WindowCapacity QueryPrompt(const Tokens& prompt, uint32_t max_new_tokens) {
    return Query({.tokens = prompt, .max_new_tokens = max_new_tokens});
  }
  // The blocks that a running sequence needs for this many more tokens.
  uint32_t BlocksFor(uint64_t id, uint32_t more_tokens) {
    const WindowCapacity answer =
        Query({.sequence = SequenceId{id}, .max_new_tokens = more_tokens});
    EXPECT_EQ(answer.blocks_now, 0u) << "its prompt is in";
    return answer.blocks_to_completion;
  }
};

// Scenario 14. Peers count blocks: 3 missed, then 2 reused and 1 missed. Here the cache counts the
// blocks taken and the tokens looked up and hit. The client knows those of its own request from the
// answer.
TEST_F(CapacityTest, CountersTellReuse) {
  Make(4, 16);
  Add(1, Range(0, 8));
  const WindowCounters first = core_->Stats().windows.at(0).counters;
  EXPECT_EQ(first.allocated_blocks, 3u);
  EXPECT_EQ(first.prefix_lookup_tokens, 9u);
  EXPECT_EQ(first.prefix_hit_tokens, 0u);
  FreeAsPeersDo(1);
  EXPECT_EQ(Add(2, Range(0, 8)), 8u);
  const WindowCounters second = core_->Stats().windows.at(0).counters;
  EXPECT_EQ(second.allocated_blocks, 3u + 1u);
  EXPECT_EQ(second.prefix_lookup_tokens, 9u + 9u);
  EXPECT_EQ(second.prefix_hit_tokens, 8u);
}

// Scenario 23. A beam is a fork. It copies the tail that it shares when it first grows.
TEST_F(CapacityTest, BeamsShareAllBlocksButTheLast) {
  constexpr uint64_t kBeams = 8;
  Make(64, 24);
  const auto add_beams = [this](uint64_t first, const Tokens& prompt) {
    Add(first, prompt);
    Compute(first, static_cast<uint32_t>(prompt.size()));
    for (uint64_t beam = first + 1; beam < first + kBeams; ++beam) Fork(first, beam);
  };
  const auto grow_beams = [this](uint64_t first) {
    for (uint64_t beam = first; beam < first + kBeams; ++beam) {
      Append(beam, {static_cast<TokenId>(5000 + beam)});
    }
  };
  add_beams(10, Range(0, 137));  // Two blocks and a part of a third.
  EXPECT_EQ(Used(), 3u) << "as long as they share the last one, too";
  grow_beams(10);
  EXPECT_EQ(Used(), 2u + 8u);
  ExpectRefused(Reason::kSequenceExists,
                AddSequence{.sequence = SequenceId{10}, .tokens = Range(0, 9)});
  add_beams(20, Range(1000, 1137));
  grow_beams(20);
  EXPECT_EQ(Used(), 20u);
  EXPECT_EQ(Available(), 4u);
  // Peers refuse the third beam of ten blocks. Here the prompt fits, and a beam does not. The need
  // of all of them is known before.
  add_beams(30, Range(2000, 2137));
  Append(30, {1});
  Append(31, {2});
  EXPECT_EQ(Available(), 0u);
  ExpectRefused(Reason::kBlocksExhausted, AppendTokens{.sequence = SequenceId{32}, .tokens = {3}});
}

// Scenario 29.
TEST_F(CapacityTest, MemoryIsDividedByTokensInTheWindow) {
  struct Case {
    std::vector<uint32_t> head_dims;  // Proportional to the bytes per token.
    std::vector<double> shares;
  };
  const Case cases[] = {{{64, 64, 64}, {0.0769, 0.3077, 0.6154}},
                        {{64, 384, 64}, {0.0303, 0.7273, 0.2424}}};
  for (const Case& c : cases) {
    CacheSpec spec;
    const uint32_t windows[] = {1024, 4096, 8192};
    for (size_t i = 0; i < 3; ++i) {
      spec.layers.push_back(
          {.window = WindowSize{windows[i]}, .num_kv_heads = 1, .head_dim = c.head_dims[i]});
    }
    const auto layout = CacheLayout::Create(std::move(spec));
    ASSERT_TRUE(layout.ok());
    EXPECT_THAT(WindowShares(*layout, {.max_sequence_tokens = 8192}, ShareBy::kTokensInWindow),
                ElementsAre(DoubleNear(c.shares[0], 1e-4), DoubleNear(c.shares[1], 1e-4),
                            DoubleNear(c.shares[2], 1e-4)));
  }
}

// Scenario 31. Peers count whole reusable blocks (3); here a match is counted in tokens. Evictable
// matched blocks are not credited, like with peers: they are among the available blocks already.
TEST_F(CapacityTest, WhatNobodyHoldsIsAmongTheAvailable) {
  Make(16, 32);
  const Tokens prompt = Range(0, 63);
  Add(1, prompt);
  FreeAsPeersDo(1);
  EXPECT_EQ(Run(QueryCapacity{.tokens = prompt, .max_new_tokens = 32})->matched_tokens, 63u);
  const WindowCapacity cached = QueryPrompt(prompt, 32);
  EXPECT_EQ(cached.blocks_now, 4u);
  EXPECT_EQ(cached.blocks_to_completion, 6u);
  EXPECT_EQ(cached.available_blocks, 32u);
  Add(2, prompt);
  EXPECT_EQ(BlocksFor(2, 32), 2u);
}

TEST_F(CapacityTest, ASharedPrefixThatNobodyHoldsIsNoCredit) {
  Make(16, 32);
  Serve(1, Range(0, 63));
  const Tokens prompt = Range(0, 31) + Range(100, 131);
  EXPECT_EQ(Match(prompt), 32u);
  const WindowCapacity evictable = QueryPrompt(prompt, 16);
  EXPECT_EQ(evictable.blocks_now, 4u);
  EXPECT_EQ(evictable.blocks_to_completion, 5u);
  Add(2, Range(0, 63));  // This sequence holds three of its blocks, two of them shared.
  const WindowCapacity held = QueryPrompt(prompt, 16);
  EXPECT_EQ(held.blocks_now, 2u);
  EXPECT_EQ(held.blocks_to_completion, 3u);
}

TEST_F(CapacityTest, WithoutReuseAPromptTakesAllItsBlocks) {
  Make(16, 32);
  const WindowCapacity answer = QueryPrompt(Range(0, 63), 32);
  EXPECT_EQ(answer.blocks_now, 4u);
  EXPECT_EQ(answer.blocks_to_completion, 6u);
}

// Scenario 32.
TEST_F(CapacityTest, APromptsCompletionIsKnownBefore) {
  const Tokens prompt = Range(0, 1023);
  Make(1, 2048);
  EXPECT_EQ(QueryPrompt(prompt, 128).blocks_to_completion, 1152u);
  Make(64, 32);
  EXPECT_EQ(QueryPrompt(prompt, 128).blocks_to_completion, 18u);
  Make({.tokens_per_block = 64, .windows = {{WindowSize{128}, 32}}});
  EXPECT_EQ(QueryPrompt(prompt, 128).blocks_to_completion, 18u);
  Make(16, 128);
  EXPECT_EQ(QueryPrompt(Range(0, 511), 0).blocks_now, 32u);
  Make({.tokens_per_block = 16, .windows = {{WindowSize{512}, 128}}});
  EXPECT_EQ(QueryPrompt(prompt, 0).blocks_now, 64u);
}

// Scenario 32.
TEST_F(CapacityTest, AStepTakesABlockWhenItCrossesABoundary) {
  Make(16, 128);
  struct Case {
    uint32_t tokens, more_tokens, blocks;
  };
  const Case cases[] = {{512, 1, 1}, {520, 1, 0}, {143, 1, 0},
                        {143, 2, 1}, {302, 3, 1}, {298, 3, 0}};
  uint64_t id = 0;
  for (const Case& c : cases) {
    Add(++id, Range(0, c.tokens - 1));
    EXPECT_EQ(BlocksFor(id, c.more_tokens), c.blocks) << c.tokens << " + " << c.more_tokens;
    Free(id);
  }
}

// Scenario 33. Reuse is never off here. Instead each request has another prompt.
TEST_F(CapacityTest, WhenAllHaveGoneEverythingIsAvailable) {
  for (const WindowSize window :
       {WindowSize{128}, WindowSize{2048}, WindowSize{4096}, kFullAttention}) {
    for (const bool same_prompt : {false, true}) {
      Make({.tokens_per_block = 16, .windows = {{window, 64}}});
      for (uint64_t id = 1; id <= 6; ++id) {
        const TokenId first = same_prompt ? 0 : static_cast<TokenId>(1000 * id);
        Add(id, Range(first, first + 99));
        Compute(id, 100);
      }
      for (uint32_t step = 0; step < 60; ++step) {
        for (uint64_t id = 1; id <= 6; ++id) Append(id, {7}, 101 + step);
      }
      for (uint64_t id = 1; id <= 6; ++id) Free(id);
      EXPECT_EQ(Used(window), 0u);
      EXPECT_EQ(Available(window), 64u);
    }
  }
}

}  // namespace
}  // namespace pagoda
