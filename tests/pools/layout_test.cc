#include "pools/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace pagoda {
namespace {

LayerSpec Layer(uint32_t heads, uint32_t head_dim, WindowSize window = kFullAttention) {
  return {.window = window, .num_kv_heads = heads, .head_dim = head_dim, .dtype = DType::kBFloat16};
}

TEST(LayoutTest, TheCommonModelHasOneWindowAndOnePool) {
  const auto layout =
      CacheLayout::Create({.tokens_per_block = 16, .layers = std::vector(36, Layer(8, 128))});
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->windows().size(), 1u);
  ASSERT_EQ(layout->windows()[0].pools.size(), 1u);
  const PoolLayout& pool = layout->windows()[0].pools[0];
  EXPECT_EQ(pool.layers.size(), 36u);
  // Qwen3-8B in bf16: 144 KiB a token.
  EXPECT_EQ(layout->windows()[0].block_bytes(), 16 * 144 * 1024u);
}

TEST(LayoutTest, StridesFollowLayerKvHeadTokenDim) {
  const auto layout =
      CacheLayout::Create({.tokens_per_block = 4, .layers = {Layer(2, 8), Layer(2, 8)}});
  ASSERT_TRUE(layout.ok());
  const PoolLayout& pool = layout->windows()[0].pools[0];
  EXPECT_EQ(pool.token_stride_bytes(), 8 * 2u);
  EXPECT_EQ(pool.head_stride_bytes(), 4 * 8 * 2u);
  EXPECT_EQ(pool.kv_stride_bytes(), 2 * 4 * 8 * 2u);
  EXPECT_EQ(pool.layer_stride_bytes(), 2 * 2 * 4 * 8 * 2u);
  EXPECT_EQ(pool.slot_stride_bytes(), 2 * 2 * 2 * 4 * 8 * 2u);
}

TEST(LayoutTest, GroupsLayersIntoWindowsAndPools) {
  const WindowSize sliding{512};
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 64,
       .layers = {Layer(3, 64), Layer(2, 64, sliding), Layer(1, 64), Layer(3, 64)}});
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->windows().size(), 2u);
  EXPECT_EQ(layout->windows()[0].window, sliding);  // Ascending: full attention is the largest.
  EXPECT_EQ(layout->windows()[1].window, kFullAttention);
  ASSERT_EQ(layout->windows()[1].pools.size(), 2u);
  EXPECT_EQ(layout->windows()[1].pools[0].layers, (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(layout->windows()[1].pools[1].layers, (std::vector<uint32_t>{2}));
  const LayerLocation& last = layout->location(3);
  EXPECT_EQ(last.window_index, 1u);
  EXPECT_EQ(last.pool_index, 0u);
  EXPECT_EQ(last.layer_index, 1u);
}

TEST(LayoutTest, KeyOnlyLayersHaveHalfTheBytes) {
  LayerSpec latent = Layer(1, 576);
  latent.kind = KvKind::kKeyOnly;
  const auto layout = CacheLayout::Create({.tokens_per_block = 64, .layers = {latent}});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->windows()[0].block_bytes(), 64 * 576 * 2u);
}

TEST(LayoutTest, RefusesWhatCannotBeLaidOut) {
  for (const uint32_t tokens_per_block : {0u, 3u, 48u, 2048u}) {
    const auto layout =
        CacheLayout::Create({.tokens_per_block = tokens_per_block, .layers = {Layer(1, 1)}});
    EXPECT_EQ(ReasonOf(layout.status()), Reason::kInvalidArgument) << tokens_per_block;
  }
  EXPECT_FALSE(CacheLayout::Create({.layers = {}}).ok());
  EXPECT_FALSE(CacheLayout::Create({.layers = {Layer(0, 64)}}).ok());
  EXPECT_FALSE(CacheLayout::Create({.layers = {Layer(8, 0)}}).ok());
  EXPECT_FALSE(CacheLayout::Create({.layers = {Layer(4'000'000'000, 4'000'000'000)}}).ok());
  EXPECT_FALSE(CacheLayout::Create({.layers = std::vector(5000, Layer(1, 1))}).ok());
}

}  // namespace
}  // namespace pagoda
