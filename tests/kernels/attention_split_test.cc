// The length of the pieces of cut contexts, for devices with many workers.
#include "kernels/attention_split.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace pagoda::kernels {
namespace {

// The workers of an H200: two blocks on each of its 132 multiprocessors.
constexpr uint32_t kWorkers = 264;

struct Batch {
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> contexts;
  AttentionMask mask;
  uint32_t num_kv_heads = 8;

  void Add(int32_t queries, int32_t context, int count = 1) {
    for (int i = 0; i < count; ++i) {
      query_starts.push_back(query_starts.back() + queries);
      contexts.push_back(context);
    }
  }
  PlanShape shape() const {
    return {.query_starts = query_starts,
            .context_lengths = contexts,
            .mask = mask,
            .num_kv_heads = num_kv_heads};
  }
};

Batch Decode(int count, int32_t context) {
  Batch batch;
  batch.Add(1, context, count);
  return batch;
}

uint32_t SplitOf(const Batch& batch, const PlanOptions& options = {.num_workers = kWorkers}) {
  return BalancedSplitTokens(batch.shape(), options, {.group = 4});
}

// The number of rounds of the workers for the pieces.
double Rounds(const Batch& batch) {
  PlanOptions options = {.num_workers = kWorkers};
  options.split_tokens = SplitOf(batch, options);
  return static_cast<double>(PlanAttention(batch.shape(), options).items.size() *
                             batch.num_kv_heads) /
         kWorkers;
}

TEST(AttentionSplitTest, OneSequenceFillsTheWorkersOnce) {
  EXPECT_EQ(SplitOf(Decode(1, 65536)), 2048u);  // 32 pieces of each of 8 heads.
  EXPECT_EQ(SplitOf(Decode(1, 16384)), 512u);
  EXPECT_EQ(SplitOf(Decode(1, 4096)), 128u);
  for (const int32_t context : {4096, 16384, 65536, 131072}) {
    EXPECT_GT(Rounds(Decode(1, context)), 0.9) << context;
    EXPECT_LE(Rounds(Decode(1, context)), 1) << context;
  }
}

TEST(AttentionSplitTest, UniformBatchesThatFillTheWorkersAreNotCut) {
  for (const int sequences : {32, 33, 64, 128, 256}) {
    EXPECT_EQ(SplitOf(Decode(sequences, 4096)), 4096u) << sequences;
  }
}

TEST(AttentionSplitTest, UniformBatchesThatLeaveWorkersIdleAreCutEvenly) {
  // 384 units would take two rounds; 768 halves take three of half the length.
  EXPECT_EQ(SplitOf(Decode(48, 4096)), 2048u);
  EXPECT_EQ(SplitOf(Decode(16, 4096)), 2048u);
  EXPECT_EQ(Rounds(Decode(16, 4096)), 256.0 / kWorkers);
}

TEST(AttentionSplitTest, OneLongContextAmongShortOnesIsCut) {
  Batch batch = Decode(63, 512);
  batch.Add(1, 65536);
  // Each worker's share of all keys is 2,963.
  EXPECT_LE(SplitOf(batch), 3008u);
  EXPECT_GE(SplitOf(batch), 1024u);
}

TEST(AttentionSplitTest, AChunksLastItemCountsAsTheQueriesThatItHas) {
  // 33 query tokens in items of 32: the last item has a single query, and can be cut.
  Batch batch;
  batch.Add(33, 131072);
  const PlanOptions options = {
      .num_workers = kWorkers, .query_tokens = 32, .split_query_tokens = 4};
  EXPECT_EQ(SplitOf(batch, options), SplitOf(Decode(1, 131072), options));
}

TEST(AttentionSplitTest, ChunksAreCutByTheirOwnItems) {
  // 16 items of 32 queries for each of 8 heads: 128 units for 264 workers.
  Batch batch;
  batch.Add(512, 131072);
  const PlanOptions options = {
      .num_workers = kWorkers, .query_tokens = 32, .split_query_tokens = 32};
  EXPECT_EQ(SplitOf(batch, options), 65536u);
  // Chunks never have pieces of less than 512 keys.
  Batch small;
  small.Add(32, 2048);
  EXPECT_EQ(SplitOf(small, options), 512u);
}

TEST(AttentionSplitTest, AWindowIsNotCutWhereItCrossesAMultiple) {
  Batch batch = Decode(32, 10000);
  batch.mask.window_tokens = 4096;
  PlanOptions options = {.num_workers = kWorkers};
  options.split_tokens = SplitOf(batch, options);
  EXPECT_EQ(PlanAttention(batch.shape(), options).num_partials, 0u);
}

TEST(AttentionSplitTest, AnEmptyBatchHasOneGranule) { EXPECT_EQ(SplitOf(Batch()), 64u); }

TEST(AttentionSplitTest, ThePlansOfRandomBatchesKeepToTheLimitOfPartialRows) {
  std::mt19937 random(3);
  uint32_t cut = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(round);
    Batch batch;
    batch.num_kv_heads = 1 + random() % 8;
    if (random() % 3 == 0) {
      batch.mask.window_tokens = 1 + random() % 5000;
      batch.mask.sink_tokens = random() % 2 * (random() % 200);
    }
    if (random() % 6 == 0) batch.mask = {.causal = false};
    const uint32_t sequences = random() % 12;
    for (uint32_t s = 0; s < sequences; ++s) {
      const auto context = static_cast<int32_t>(random() % (1u << random() % 18));
      const int32_t queries =
          random() % 2 == 0 ? std::min(context, 1) : static_cast<int32_t>(random() % (context + 1));
      batch.Add(std::min(queries, 3000), context);
    }
    PlanOptions options = {.num_workers = 1 + static_cast<uint32_t>(random() % 300),
                           .query_tokens = 1 + static_cast<uint32_t>(random() % 40)};
    options.split_query_tokens = 1 + random() % options.query_tokens;
    const SplitLimits limits = {.short_query_tokens = 1 + static_cast<uint32_t>(random() % 4),
                                .group = 1 + static_cast<uint32_t>(random() % 8),
                                .most_partials = 1 + random() % 5000};
    options.split_tokens = BalancedSplitTokens(batch.shape(), options, limits);
    EXPECT_EQ(options.split_tokens % limits.granule_tokens, 0u);
    const AttentionPlan plan = PlanAttention(batch.shape(), options);
    EXPECT_LE(plan.num_partials, limits.most_partials);
    if (plan.num_partials > 0) ++cut;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(cut, 300u);
}

}  // namespace
}  // namespace pagoda::kernels
