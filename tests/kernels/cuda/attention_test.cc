// GPU attention against the fp64 reference, on the device that device_memory.h provides. In the
// pool, everything that no query sees is NaN; in the tables it is -1.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/kernels/cuda/attention_case.h"

namespace pagoda::kernels::cuda {
namespace {

constexpr ElementType kHalf = ElementType::kFloat16;
constexpr ElementType kBf16 = ElementType::kBFloat16;
constexpr ElementType kE4M3 = ElementType::kFloat8E4M3;
constexpr ElementType kE5M2 = ElementType::kFloat8E5M2;
constexpr ElementType kFloat = ElementType::kFloat32;

class CudaAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
  }
};

// Empty, or the error.
std::string Check(const AttentionCase& attention_case) {
  ShuffleSchedule(attention_case.seed);
  AttentionData data(attention_case);
  const absl::StatusOr<AttentionResult> result = data.Run();
  if (!result.ok()) return attention_case.Describe() + ": " + result.status().ToString();
  const std::string difference = Compare(attention_case, *result, data.Reference());
  return difference.empty() ? "" : attention_case.Describe() + ": " + difference;
}

// By the kernels for any GPU, and by the Hopper kernels on a Hopper.
std::string CheckTensor(AttentionCase attention_case) {
  attention_case.kernels = AttentionKernels::kSm80;
  const std::string wrong = Check(attention_case);
  if (!wrong.empty() || !HasHopper()) return wrong;
  attention_case.kernels = AttentionKernels::kHopper;
  const std::string cut = Check(attention_case);
  if (!cut.empty() || attention_case.split_tokens != 0) return cut;
  // A few sequences do not fill a GPU, so their contexts are cut into pieces of one tile.
  attention_case.split_tokens = 1000;
  return Check(attention_case);
}

// Each kernel: decode, prefill, both on Hopper, and the generic one for both.
void CheckAll(AttentionCase attention_case, std::vector<Lengths> short_lengths,
              std::vector<Lengths> long_lengths) {
  for (const std::vector<Lengths>& lengths : {short_lengths, long_lengths}) {
    attention_case.lengths = lengths;
    EXPECT_EQ(CheckTensor(attention_case), "");
    attention_case.kernels = AttentionKernels::kGeneric;
    EXPECT_EQ(Check(attention_case), "");
  }
}

TEST_F(CudaAttentionTest, LengthsAroundBlocksAndTiles) {
  for (const int32_t boundary : {16, 64, 128}) {
    std::vector<Lengths> decode;
    std::vector<Lengths> prefill;
    for (const int32_t context : {boundary - 1, boundary, boundary + 1}) {
      decode.push_back({1, context});
      prefill.push_back({std::min(context, 40), context});
    }
    CheckAll({.seed = static_cast<uint32_t>(boundary)}, decode, prefill);
  }
}

// Several tiles of keys, and of rows of a unit, on each boundary of both.
TEST_F(CudaAttentionTest, LengthsAroundLargeTiles) {
  for (const uint32_t dim : {64u, 128u, 256u}) {
    for (const int32_t context : {255, 256, 257, 400}) {
      const AttentionCase attention_case = {
          .seed = dim + static_cast<uint32_t>(context),
          .num_kv_heads = 1,
          .head_dim = dim,
          .lengths = {{std::min(context, 70), context}, {31, 31}}};
      EXPECT_EQ(CheckTensor(attention_case), "");
    }
  }
}

TEST_F(CudaAttentionTest, EmptyAndSingleSequences) {
  CheckAll({}, {{0, 0}, {1, 1}, {0, 20}, {1, 2}, {0, 0}}, {{0, 0}, {1, 1}, {33, 33}, {0, 17}});
  CheckAll({.lengths = {}}, {}, {});
  CheckAll({}, {{0, 0}}, {{0, 30}});
}

TEST_F(CudaAttentionTest, EveryTypeAndDimension) {
  for (const uint32_t dim : {64u, 80u, 96u, 128u, 192u, 256u}) {
    for (const ElementType pool : {kHalf, kBf16, kE4M3, kE5M2}) {
      const ElementType query = pool == kHalf || pool == kE5M2 ? kHalf : kBf16;
      AttentionCase attention_case = {.seed = dim,
                                      .query_type = query,
                                      .pool_type = pool,
                                      .num_kv_heads = 1,
                                      .head_dim = dim,
                                      .lengths = {{1, 70}, {9, 70}, {2, 33}}};
      EXPECT_EQ(CheckTensor(attention_case), "");
    }
  }
}

TEST_F(CudaAttentionTest, WhatTensorCoresDoNotTake) {
  const std::vector<Lengths> lengths = {{1, 40}, {7, 30}};
  for (const ElementType query : {kFloat, kHalf, kBf16}) {
    for (const ElementType pool : {kFloat, kHalf, kBf16, kE4M3, kE5M2}) {
      EXPECT_EQ(Check({.query_type = query, .pool_type = pool, .head_dim = 20, .lengths = lengths}),
                "");
      EXPECT_EQ(Check({.query_type = query, .pool_type = pool, .lengths = lengths}), "");
    }
  }
  EXPECT_EQ(Check({.head_dim = 1, .lengths = lengths}), "");
  EXPECT_EQ(Check({.head_dim = 320, .lengths = lengths}), "");
}

TEST_F(CudaAttentionTest, Latents) {
  // K only, of multi-head latent attention: 512 elements, and 64 of position.
  for (const uint32_t group : {1u, 8u, 16u, 40u}) {
    AttentionCase attention_case = {
        .seed = group, .num_kv_heads = 1, .group = group, .head_dim = 576, .value_dim = 512};
    CheckAll(attention_case, {{1, 30}, {2, 9}, {0, 5}}, {{3, 70}, {1, 129}});
    attention_case.split_tokens = 1000;
    CheckAll(attention_case, {{1, 64}, {1, 65}}, {{5, 200}});
  }
  AttentionCase half = {.query_type = kHalf,
                        .pool_type = kHalf,
                        .num_kv_heads = 2,
                        .group = 4,
                        .head_dim = 320,
                        .value_dim = 264,
                        .tokens_per_block = 8,
                        .soft_cap = 20,
                        .alibi = true,
                        .sinks = true,
                        .split_tokens = 80};
  CheckAll(half, {{1, 100}}, {{20, 100}});
  half.mask = {.window_tokens = 30, .sink_tokens = 3};
  CheckAll(half, {{1, 100}}, {{20, 100}});
  // One case that fits the tiles of decode and prefill.
  CheckAll({.num_kv_heads = 1, .group = 8, .head_dim = 192, .value_dim = 128}, {{1, 90}, {1, 5}},
           {{20, 90}});
}

TEST_F(CudaAttentionTest, GroupsOfQueryHeads) {
  for (const uint32_t group : {1u, 2u, 3u, 5u, 6u, 7u, 8u, 16u, 32u}) {
    EXPECT_EQ(CheckTensor({.seed = group, .group = group, .lengths = {{1, 50}, {2, 40}, {17, 40}}}),
              "");
  }
}

TEST_F(CudaAttentionTest, TokensPerBlock) {
  for (const uint32_t tokens : {1u, 8u, 16u, 24u, 32u, 64u, 128u}) {
    CheckAll({.seed = tokens, .num_kv_heads = 1, .tokens_per_block = tokens}, {{1, 130}, {1, 31}},
             {{20, 130}});
  }
}

TEST_F(CudaAttentionTest, Windows) {
  for (const uint32_t window : {1u, 15u, 16u, 17u, 60u, 500u}) {
    for (const uint32_t sinks : {0u, 1u, 20u}) {
      AttentionCase attention_case = {.seed = window + sinks, .num_kv_heads = 1};
      attention_case.mask = {.window_tokens = window, .sink_tokens = sinks};
      CheckAll(attention_case, {{1, 200}, {1, 16}, {2, 90}}, {{70, 200}, {30, 30}});
    }
  }
}

TEST_F(CudaAttentionTest, BlockSparsity) {
  for (const uint32_t step : {0u, 1u}) {
    AttentionCase attention_case = {.seed = 7 + step, .num_kv_heads = 2, .group = 2};
    attention_case.mask.sparsity = {
        .block_tokens = 16, .local_blocks = 2, .vertical_stride = 3, .head_step = step};
    CheckAll(attention_case, {{1, 200}, {1, 16}}, {{50, 200}, {40, 40}});
    attention_case.mask.window_tokens = 100;
    attention_case.mask.sink_tokens = 4;
    CheckAll(attention_case, {{1, 200}, {1, 16}}, {{50, 200}, {40, 40}});
  }
}

TEST_F(CudaAttentionTest, WithoutCausality) {
  AttentionCase attention_case;
  attention_case.mask.causal = false;
  CheckAll(attention_case, {{1, 70}, {1, 1}}, {{30, 70}, {20, 20}});
}

TEST_F(CudaAttentionTest, SoftCapAlibiAndSinks) {
  const std::vector<Lengths> decode = {{1, 70}, {1, 3}};
  const std::vector<Lengths> prefill = {{30, 70}, {40, 40}};
  CheckAll({.soft_cap = 5, .query_size = 3}, decode, prefill);
  CheckAll({.group = 3, .alibi = true}, decode, prefill);
  CheckAll({.sinks = true}, decode, prefill);
  AttentionCase all = {.soft_cap = 20, .alibi = true, .sinks = true, .split_tokens = 32};
  all.mask.window_tokens = 40;
  CheckAll(all, decode, prefill);
}

TEST_F(CudaAttentionTest, ScalesOfEightBitPools) {
  for (const ElementType pool : {kE4M3, kE5M2}) {
    CheckAll({.pool_type = pool, .pool_scales = true}, {{1, 50}}, {{20, 50}});
  }
}

TEST_F(CudaAttentionTest, ScalesOfSlots) {
  const std::vector<Lengths> decode = {{1, 50}, {1, 7}}, prefill = {{20, 90}};
  CheckAll({.pool_type = kE5M2, .tokens_per_block = 16, .slot_scales = true}, decode, prefill);
  CheckAll({.pool_type = kE4M3, .tokens_per_block = 64, .slot_scales = true}, decode, prefill);
  CheckAll({.pool_type = kE4M3, .head_dim = 128, .slot_scales = true}, decode, prefill);
  AttentionCase masked = {.pool_type = kE4M3,
                          .tokens_per_block = 8,
                          .soft_cap = 20,
                          .alibi = true,
                          .sinks = true,
                          .slot_scales = true,
                          .split_tokens = 32};
  masked.mask.window_tokens = 40;
  masked.mask.sink_tokens = 4;
  CheckAll(masked, decode, prefill);
  // Latents, by the plain kernel.
  CheckAll(
      {.pool_type = kE4M3, .num_kv_heads = 1, .head_dim = 96, .value_dim = 64, .slot_scales = true},
      decode, {{20, 50}});
}

TEST_F(CudaAttentionTest, LargeScores) {
  // Nearly all weight is on one key, which moves from tile to tile.
  CheckAll({.scale = 30, .query_size = 4}, {{1, 300}}, {{20, 200}});
  // All scores are equal: the mean of values.
  CheckAll({.query_size = 0}, {{1, 300}}, {{20, 200}});
  CheckAll({.scale = -0.5f}, {{1, 100}}, {{20, 100}});
}

TEST_F(CudaAttentionTest, LayoutsStridesAndSharedBlocks) {
  CheckAll({.token_flat = true}, {{1, 90}, {1, 7}}, {{20, 90}});
  CheckAll({.padding = 8}, {{1, 90}, {1, 7}}, {{20, 90}});
  CheckAll({.padding = 3}, {{1, 90}, {1, 7}}, {{20, 90}});  // Not whole vectors: generic.
  CheckAll({.shared_blocks = true}, {{1, 90}, {1, 80}, {1, 100}}, {{20, 90}, {20, 100}});
}

TEST_F(CudaAttentionTest, SplitContexts) {
  for (const uint32_t split : {1u, 16u, 24u, 64u, 1000u}) {
    CheckAll({.seed = split, .num_kv_heads = 1, .sinks = split % 2 == 0, .split_tokens = split},
             {{1, 100}, {1, 64}, {2, 33}}, {{9, 100}, {20, 64}});
  }
}

AttentionCase RandomCase(uint32_t seed) {
  std::mt19937 random(seed);
  const auto choose = [&random](std::vector<uint32_t> from) {
    return from[random() % from.size()];
  };
  AttentionCase c = {.seed = seed};
  c.pool_type = static_cast<ElementType>(choose({1, 1, 2, 2, 3, 4, 0}));
  c.query_type = c.pool_type == kHalf ? kHalf : c.pool_type == kFloat ? kFloat : kBf16;
  if (IsFloat8(c.pool_type)) c.query_type = choose({0, 1}) == 0 ? kHalf : kBf16;
  c.num_kv_heads = choose({1, 2, 3});
  c.group = choose({1, 2, 3, 4, 5, 8, 16});
  c.head_dim = choose({16, 48, 64, 64, 80, 96, 128, 128});
  c.tokens_per_block = choose({1, 8, 16, 32, 64, 128});
  c.lengths.clear();
  for (uint32_t i = choose({1, 2, 3, 4}); i > 0; --i) {
    const int32_t context = static_cast<int32_t>(random() % 160);
    const int32_t most = std::min(context, 40);
    c.lengths.push_back(
        {choose({0, 1}) == 0 ? std::min(1, context) : static_cast<int32_t>(random() % (most + 1)),
         context});
  }
  c.mask.causal = choose({1, 1, 1, 0}) == 1;
  if (c.mask.causal) {
    if (choose({0, 0, 1}) == 1) {
      c.mask.window_tokens = 1 + random() % 100;
      c.mask.sink_tokens = choose({0, 0, 4, 30});
    }
    if (choose({0, 0, 0, 1}) == 1) {
      c.mask.sparsity = {.block_tokens = choose({8, 16, 50}),
                         .local_blocks = choose({1, 2}),
                         .vertical_stride = choose({0, 2, 5}),
                         .head_step = choose({0, 1})};
    }
    c.alibi = choose({0, 0, 1}) == 1;
  }
  c.soft_cap = static_cast<float>(choose({0, 0, 30}));
  c.sinks = choose({0, 0, 1}) == 1;
  c.pool_scales = IsFloat8(c.pool_type) && choose({0, 1}) == 1;
  c.token_flat = choose({0, 0, 1}) == 1;
  c.shared_blocks = choose({0, 1}) == 1;
  c.padding = choose({0, 0, 8, 3});
  c.split_tokens = choose({0, 0, 16, 40, 64, 1000});
  c.slot_scales = c.pool_scales && choose({0, 1}) == 1;
  return c;
}

TEST_F(CudaAttentionTest, RandomCases) {
  const uint32_t count = IsEmulated() ? 40 : 2000;
  int failures = 0;
  for (uint32_t seed = 0; seed < count && failures < 5; ++seed) {
    const std::string wrong = CheckTensor(RandomCase(seed));
    EXPECT_EQ(wrong, "");
    if (!wrong.empty()) ++failures;
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
