// A plan covers each key that the mask shows exactly once, in pieces of similar cost.
#include "kernels/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pagoda::kernels {
namespace {

struct Lengths {
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> contexts;

  void Add(int32_t queries, int32_t context) {
    query_starts.push_back(query_starts.back() + queries);
    contexts.push_back(context);
  }
  PlanShape Shape(AttentionMask mask = {}, uint32_t num_kv_heads = 2) const {
    return {.query_starts = query_starts,
            .context_lengths = contexts,
            .mask = mask,
            .num_kv_heads = num_kv_heads};
  }
};

Lengths RandomLengths(std::mt19937& random) {
  Lengths lengths;
  const uint32_t sequences = random() % 6;
  for (uint32_t s = 0; s < sequences; ++s) {
    const auto context = static_cast<int32_t>(random() % 90);
    const int32_t queries =
        random() % 3 == 0 ? std::min(context, 1) : static_cast<int32_t>(random() % (context + 1));
    lengths.Add(queries, context);
  }
  return lengths;
}

AttentionMask RandomMask(std::mt19937& random) {
  AttentionMask mask;
  switch (random() % 4) {
    case 0:
      mask.causal = false;
      break;
    case 1:
      mask.window_tokens = 1 + random() % 40;
      mask.sink_tokens = random() % 2 * (random() % 12);
      break;
    case 2:
      mask.sparsity = {.block_tokens = 8, .local_blocks = 2, .vertical_stride = 3};
      break;
    default:
      break;
  }
  return mask;
}

// Counts how often each query row's items read each of its keys. Checks that each partial row is
// used once, by the merge of its queries, in ascending order of keys.
void ExpectCovered(const Lengths& lengths, const AttentionMask& mask, const AttentionPlan& plan) {
  std::vector<uint32_t> partial_uses(plan.num_partials, 0);
  std::vector<uint32_t> results(lengths.query_starts.back(), 0);
  for (const AttentionMerge& merge : plan.merges) {
    ASSERT_GE(merge.num_parts, 2u);
    for (uint32_t r = 0; r < merge.num_queries; ++r) ++results[merge.first_query + r];
    uint32_t end_key = 0;
    for (uint32_t k = 0; k < merge.num_parts; ++k) {
      const uint32_t partial = merge.partial + k * merge.num_queries;
      const auto item = std::find_if(
          plan.items.begin(), plan.items.end(),
          [&](const AttentionItem& candidate) { return candidate.partial == partial; });
      ASSERT_NE(item, plan.items.end());
      EXPECT_EQ(item->first_query, merge.first_query);
      EXPECT_EQ(item->num_queries, merge.num_queries);
      EXPECT_GE(item->first_key, end_key);
      end_key = item->end_key;
      for (uint32_t r = 0; r < merge.num_queries; ++r) ++partial_uses[partial + r];
    }
  }
  for (const uint32_t uses : partial_uses) EXPECT_EQ(uses, 1u);

  for (size_t s = 0; s < lengths.contexts.size(); ++s) {
    for (int32_t n = lengths.query_starts[s]; n < lengths.query_starts[s + 1]; ++n) {
      std::vector<uint32_t> reads(lengths.contexts[s], 0);
      for (const AttentionItem& item : plan.items) {
        const auto row = static_cast<uint32_t>(n);
        if (row < item.first_query || row >= item.first_query + item.num_queries) continue;
        ASSERT_EQ(item.sequence, s);
        if (item.partial == AttentionItem::kWhole) ++results[n];
        for (uint32_t key = item.first_key; key < item.end_key; ++key) ++reads[key];
      }
      EXPECT_EQ(results[n], 1u) << "row " << n;
      const int64_t position = lengths.contexts[s] - lengths.query_starts[s + 1] + n;
      for (int64_t key = 0; key < lengths.contexts[s]; ++key) {
        ASSERT_LE(reads[key], 1u);
        if (Sees(mask, 0, position, key)) {
          ASSERT_EQ(reads[key], 1u) << "key " << key;
        }
      }
    }
  }
}

TEST(AttentionPlanTest, EveryVisibleKeyIsReadOnceAndEveryRowHasOneResult) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    const Lengths lengths = RandomLengths(random);
    const AttentionMask mask = RandomMask(random);
    const PlanOptions options{.num_workers = 1 + static_cast<uint32_t>(random() % 5),
                              .query_tokens = 1 + static_cast<uint32_t>(random() % 20),
                              .split_tokens = 1 + static_cast<uint32_t>(random() % 40),
                              .split_query_tokens = 1 + static_cast<uint32_t>(random() % 8)};
    const AttentionPlan plan = PlanAttention(lengths.Shape(mask), options);
    ExpectCovered(lengths, mask, plan);
    ASSERT_EQ(plan.worker_starts.size(), options.num_workers + 1);
    EXPECT_EQ(plan.worker_starts.front(), 0u);
    EXPECT_EQ(plan.worker_starts.back(), plan.items.size() * 2);
    EXPECT_TRUE(std::is_sorted(plan.worker_starts.begin(), plan.worker_starts.end()));
    EXPECT_EQ(plan, PlanAttention(lengths.Shape(mask), options));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(AttentionPlanTest, ASequenceIsCutAlikeWhateverElseIsInTheBatch) {
  Lengths alone;
  alone.Add(1, 3000);
  Lengths third;
  third.Add(1, 100);
  third.Add(700, 5000);
  third.Add(1, 3000);
  const AttentionPlan one = PlanAttention(alone.Shape(), {.num_workers = 1, .query_tokens = 24});
  const AttentionPlan all = PlanAttention(third.Shape(), {.num_workers = 8, .query_tokens = 24});
  const size_t parts = one.items.size();
  EXPECT_EQ(parts, 6u);
  for (size_t i = 0; i < parts; ++i) {
    const AttentionItem& item = all.items[all.items.size() - parts + i];
    EXPECT_EQ(item.first_key, one.items[i].first_key);
    EXPECT_EQ(item.end_key, one.items[i].end_key);
  }
}

TEST(AttentionPlanTest, AWindowReadsNothingBeforeIt) {
  Lengths lengths;
  lengths.Add(1, 3000);
  const AttentionPlan plan =
      PlanAttention(lengths.Shape({.window_tokens = 100}), {.split_tokens = 512});
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].first_key, 2900u);
  EXPECT_EQ(plan.items[0].end_key, 3000u);

  const AttentionPlan sinks =
      PlanAttention(lengths.Shape({.window_tokens = 100, .sink_tokens = 4}), {.split_tokens = 512});
  ASSERT_EQ(sinks.items.size(), 2u);
  EXPECT_EQ(sinks.items[0].end_key, 512u);
  EXPECT_EQ(sinks.items[1].first_key, 2560u);
}

TEST(AttentionPlanTest, WorkersGetLikeShares) {
  Lengths lengths;
  for (int s = 0; s < 16; ++s) lengths.Add(1, 4096);
  for (const uint32_t workers : {2u, 3u, 16u, 60u}) {
    const AttentionPlan plan = PlanAttention(lengths.Shape({}, 8), {.num_workers = workers});
    const uint64_t units = plan.items.size() * 8;
    for (uint32_t w = 0; w < workers; ++w) {
      const uint64_t share = plan.worker_starts[w + 1] - plan.worker_starts[w];
      EXPECT_GE(share + 1, units / workers) << workers << " workers";
      EXPECT_LE(share, units / workers + 1) << workers << " workers";
    }
  }
}

}  // namespace
}  // namespace pagoda::kernels
