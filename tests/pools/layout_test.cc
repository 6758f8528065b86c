#include "pools/layout.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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
  // Qwen3-8B in bf16: 144 KiB per token.
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
}

TEST(LayoutTest, KeyOnlyLayersHaveHalfTheBytes) {
  LayerSpec latent = Layer(1, 576);
  latent.kind = KvKind::kKeyOnly;
  const auto layout = CacheLayout::Create({.tokens_per_block = 64, .layers = {latent}});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->windows()[0].block_bytes(), 64 * 576 * 2u);
}

LayerSpec Opaque(uint64_t bytes, WindowSize window = kFullAttention) {
  return {.window = window, .kind = KvKind::kOpaque, .bytes_per_block = bytes};
}

TEST(LayoutTest, OpaqueLayersOfOneSizeAndWindowShareAPool) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 16,
       .layers = {Opaque(100), Layer(1, 8), Opaque(100), Opaque(64), Opaque(100, WindowSize(32))}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  ASSERT_EQ(layout->windows().size(), 2u);
  const std::vector<PoolLayout>& pools = layout->windows()[1].pools;
  ASSERT_EQ(pools.size(), 3u);
  EXPECT_EQ(pools[0].layers, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(pools[0].content, PoolContent::kOpaque);
  EXPECT_EQ(pools[0].dtype, DType::kUint8);
  EXPECT_EQ(pools[0].layer_stride_bytes(), 100u);
  EXPECT_EQ(pools[0].slot_stride_bytes(), 200u);
  EXPECT_EQ(pools[2].slot_stride_bytes(), 64u);
  EXPECT_EQ(layout->windows()[1].block_bytes(), 200 + 2 * 16 * 8 * 2 + 64u);
}

TEST(LayoutTest, AFloat8PoolIsFollowedByItsScales) {
  LayerSpec e4m3 = Layer(2, 8);
  e4m3.dtype = DType::kFloat8E4M3;
  LayerSpec e5m2 = e4m3;
  e5m2.dtype = DType::kFloat8E5M2;
  e5m2.kind = KvKind::kKeyOnly;
  const auto layout =
      CacheLayout::Create({.tokens_per_block = 4, .layers = {e4m3, e5m2, Layer(2, 8), e4m3}});
  ASSERT_TRUE(layout.ok()) << layout.status();
  const std::vector<PoolLayout>& pools = layout->windows()[0].pools;
  ASSERT_EQ(pools.size(), 5u);
  EXPECT_TRUE(pools[0].has_scales());
  EXPECT_EQ(pools[0].slot_stride_bytes(), 2 * 2 * 2 * 4 * 8u) << "a byte an element";
  EXPECT_EQ(pools[1].content, PoolContent::kScales);
  EXPECT_EQ(pools[1].dtype, DType::kFloat32);
  EXPECT_EQ(pools[1].layers, (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(pools[1].head_stride_bytes(), 4u);
  EXPECT_EQ(pools[1].kv_stride_bytes(), 2 * 4u);
  EXPECT_EQ(pools[1].layer_stride_bytes(), 2 * 2 * 4u);
  EXPECT_EQ(pools[1].slot_stride_bytes(), 2 * 2 * 2 * 4u);
  EXPECT_FALSE(pools[1].has_scales());
  EXPECT_EQ(pools[2].dtype, DType::kFloat8E5M2);
  EXPECT_EQ(pools[0].layers, (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(pools[3].layers, (std::vector<uint32_t>{1}));
  EXPECT_EQ(pools[3].slot_stride_bytes(), 2 * 4u) << "of K alone";
  EXPECT_EQ(pools[4].layers, (std::vector<uint32_t>{2}));
}

TEST(LayoutTest, BytesOfOneByteEachHaveNoScales) {
  LayerSpec bytes = Layer(1, 8);
  bytes.dtype = DType::kUint8;
  const auto layout = CacheLayout::Create({.tokens_per_block = 4, .layers = {bytes}});
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->windows()[0].pools.size(), 1u);
  EXPECT_EQ(layout->windows()[0].block_bytes(), 2 * 4 * 8u);
}

TEST(LayoutTest, TheLargestBlockFits64Bits) {
  const auto layout = CacheLayout::Create(
      {.tokens_per_block = 1024, .layers = std::vector(4096, Opaque(kMaxOpaqueBytes))});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->windows()[0].block_bytes(), uint64_t{4096} << 30);
}

TEST(LayoutTest, RefusesOpaqueLayersThatAreNone) {
  const auto refusal = [](LayerSpec layer) {
    const auto layout = CacheLayout::Create({.layers = {Layer(1, 1), layer}});
    EXPECT_EQ(ReasonOf(layout.status()), Reason::kInvalidArgument);
    return std::string(layout.status().message());
  };
  EXPECT_EQ(refusal(Opaque(0)), "layer 1 is opaque, of 0 bytes_per_block, not 1 to 1073741824");
  EXPECT_EQ(refusal(Opaque(~uint64_t{0})),
            "layer 1 is opaque, of 18446744073709551615 bytes_per_block, not 1 to 1073741824");
  LayerSpec heads = Opaque(8);
  heads.num_kv_heads = 2;
  EXPECT_EQ(refusal(heads),
            "layer 1 is opaque, and has num_kv_heads 2 and head_dim 0; both have to be 0");
  LayerSpec bytes = Layer(1, 8);
  bytes.bytes_per_block = 8;
  EXPECT_EQ(refusal(bytes), "layer 1 has bytes_per_block 8, which only opaque layers have");
  EXPECT_EQ(refusal(Opaque(8, WindowSize(0))), "layer 1 has window 0; none may be 0");
  LayerSpec odd = Layer(1, 8);
  odd.dtype = static_cast<DType>(77);
  EXPECT_EQ(refusal(odd), "layer 1 has the unknown dtype 77");
  odd = Layer(1, 8);
  odd.kind = static_cast<KvKind>(9);
  EXPECT_EQ(refusal(odd), "layer 1 has the unknown kind 9");
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
