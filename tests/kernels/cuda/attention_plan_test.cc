// The memory cost of GPU plans, and whether they fill a GPU. Runs on the host only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/attention.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint32_t kMultiprocessors = 132;

struct Lengths {
  int32_t queries;
  int32_t context;
};

struct Planned {
  AttentionPlan plan;
  PlanCapacity capacity;
  uint64_t units = 0;
  uint64_t workspace_bytes = 0;
};

Planned PlanOf(const std::vector<Lengths>& lengths, uint32_t num_heads = 32,
               uint32_t num_kv_heads = 8, uint32_t value_dim = 128, AttentionMask mask = {}) {
  std::vector<int32_t> starts = {0};
  std::vector<int32_t> contexts;
  for (const Lengths& sequence : lengths) {
    starts.push_back(starts.back() + sequence.queries);
    contexts.push_back(sequence.context);
  }
  Planned planned;
  planned.plan = PlanForCuda({.query_starts = starts,
                              .context_lengths = contexts,
                              .mask = mask,
                              .num_kv_heads = num_kv_heads},
                             num_heads, {.num_multiprocessors = kMultiprocessors});
  planned.capacity = CapacityFor(planned.plan, num_heads);
  planned.units = planned.plan.items.size() * num_kv_heads;
  planned.workspace_bytes = WorkspaceBytes(planned.capacity, num_heads, value_dim);
  return planned;
}

// A chunk of 512 tokens is the scheduler's default.
TEST(CudaPlanTest, AChunkOf512TokensTakesLittleWorkspaceAtEveryContext) {
  for (const int32_t context : {512, 1024, 4096, 32768, 131072, 1 << 20}) {
    SCOPED_TRACE(context);
    const Planned planned = PlanOf({{512, context}});
    EXPECT_LE(planned.workspace_bytes, 64 * kMebibyte);
    EXPECT_LE(planned.units, 4u * kMultiprocessors);
    EXPECT_GE(planned.units, 128u);
    EXPECT_LE(PlanBytes(planned.capacity), kMebibyte);
  }
}

TEST(CudaPlanTest, ShortChunksAreCutUntilTheyFillTheGpu) {
  for (const int32_t queries : {8, 32, 64, 128, 256}) {
    SCOPED_TRACE(queries);
    const Planned planned = PlanOf({{queries, 131072}});
    EXPECT_LE(planned.workspace_bytes, 64 * kMebibyte);
    EXPECT_GE(planned.units, 2u * kMultiprocessors * 9 / 10);
    EXPECT_LE(planned.units, 4u * kMultiprocessors);
  }
}

// The last item of a chunk can have as few queries as decode has.
TEST(CudaPlanTest, ALongPromptIsNotCutForItsLastToken) {
  const Planned planned = PlanOf({{4097, 4097}});
  EXPECT_LE(planned.workspace_bytes, kMebibyte);
  EXPECT_LE(planned.units, 129u * 8 + 264);
}

TEST(CudaPlanTest, ALatentPrefillTakesLittleWorkspace) {
  // 128 heads over one latent: each query token is an item.
  for (const int32_t context : {512, 8192, 131072}) {
    const Planned planned = PlanOf({{512, context}}, 128, 1, 512);
    EXPECT_LE(planned.workspace_bytes, 64 * kMebibyte) << context;
  }
}

TEST(CudaPlanTest, DecodeOfAUniformBatchIsOneRound) {
  EXPECT_EQ(PlanOf({{1, 65536}}).units, 32u * 8);
  EXPECT_EQ(PlanOf({{1, 4096}}).units, 32u * 8);
  EXPECT_EQ(PlanOf(std::vector<Lengths>(16, {1, 4096})).units, 256u);
  EXPECT_EQ(PlanOf(std::vector<Lengths>(32, {1, 4096})).units, 256u);
  EXPECT_EQ(PlanOf(std::vector<Lengths>(32, {1, 4096})).capacity.merged_rows, 0u);
}

TEST(CudaPlanTest, PartialRowsAreBoundedForRandomBatches) {
  std::mt19937 random(7);
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(round);
    const uint32_t kv_heads = 1u << random() % 4;
    const uint32_t heads = kv_heads << random() % 5;
    AttentionMask mask;
    if (random() % 3 == 0) {
      mask.window_tokens = 1 + random() % 8000;
      mask.sink_tokens = random() % 2 * 4;
    }
    std::vector<Lengths> lengths;
    const uint32_t sequences = 1 + random() % 40;
    for (uint32_t s = 0; s < sequences; ++s) {
      const auto context = static_cast<int32_t>(1 + random() % (1u << (1 + random() % 17)));
      const int32_t most = std::min(context, 1 << random() % 11);
      lengths.push_back({1 + static_cast<int32_t>(random() % most), context});
    }
    const Planned planned = PlanOf(lengths, heads, kv_heads, 128, mask);
    // Two pieces of 128 rows for each of two blocks per multiprocessor, in fp32.
    EXPECT_LE(planned.workspace_bytes, 4ull * kMultiprocessors * 128 * 129 * 4);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
