#include "engine/model/kv_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "tests/engine/golden.h"
#include "tests/engine/test_cache.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two windows, and in the full one two pools.
ModelConfig MixedConfig() {
  ModelConfig config;
  config.num_heads = 4;
  config.head_dim = 32;
  config.rotaries.resize(1);
  config.layers = {{.window = WindowSize(32), .num_kv_heads = 2},
                   {.window = kFullAttention, .num_kv_heads = 1},
                   {.window = kFullAttention, .num_kv_heads = 2},
                   {.window = WindowSize(32), .num_kv_heads = 2},
                   {.window = kFullAttention, .num_kv_heads = 1}};
  return config;
}

CacheSpec SpecOf(const ModelConfig& config) {
  CacheSpec spec;
  spec.tokens_per_block = 16;
  for (const LayerConfig& layer : config.layers) {
    spec.layers.push_back({.window = layer.window,
                           .num_kv_heads = layer.num_kv_heads,
                           .head_dim = config.head_dim,
                           .dtype = DType::kBFloat16,
                           .kind = KvKind::kKeyAndValue});
  }
  return spec;
}

TEST(KvPoolsTest, FindsEachLayerInItsPool) {
  const ModelConfig config = MixedConfig();
  TestCache cache(SpecOf(config), {.primary_blocks = 3});
  const auto client = cache.OpenClient();
  const absl::StatusOr<KvPools> pools = KvPools::Map(*client, config);
  ASSERT_TRUE(pools.ok()) << pools.status();
  EXPECT_THAT(pools->windows(), ElementsAre(WindowSize(32), kFullAttention));
  ASSERT_EQ(pools->layers().size(), 5u);
  std::set<const std::byte*> places;
  for (size_t i = 0; i < 5; ++i) {
    const kernels::KvLayer& layer = pools->layers()[i];
    EXPECT_EQ(layer.num_kv_heads, config.layers[i].num_kv_heads);
    EXPECT_EQ(layer.head_dim, 32u);
    EXPECT_EQ(layer.tokens_per_block, 16u);
    EXPECT_EQ(layer.num_slots, 3u);
    EXPECT_EQ(layer.type, kernels::ElementType::kBFloat16);
    EXPECT_EQ(layer.values - layer.keys, 16 * 32 * 2 * layer.num_kv_heads);
    // A layer's bytes in slot 2 are what its pool has there.
    places.insert(layer.keys + 2 * layer.slot_stride_bytes);
    layer.keys[2 * layer.slot_stride_bytes] = std::byte(i + 1);
  }
  EXPECT_EQ(places.size(), 5u);
  const auto first_byte = [&](uint32_t window, uint32_t pool, uint64_t offset) {
    return cache.pools().pool(window, pool).slot(SlotIndex(2))[offset];
  };
  EXPECT_EQ(first_byte(0, 0, 0), std::byte(1));
  EXPECT_EQ(first_byte(0, 0, 2 * 16 * 32 * 2 * 2), std::byte(4));
  EXPECT_EQ(first_byte(1, 0, 0), std::byte(2));
  EXPECT_EQ(first_byte(1, 0, 2 * 16 * 32 * 2), std::byte(5));
  EXPECT_EQ(first_byte(1, 1, 0), std::byte(3));
}

TEST(KvPoolsTest, NamesWhatDiffers) {
  const ModelConfig config = MixedConfig();
  const auto expect_refused = [&](CacheSpec spec, const std::string& what) {
    TestCache cache(std::move(spec), {.primary_blocks = 3});
    const auto client = cache.OpenClient();
    const absl::Status status = KvPools::Map(*client, config).status();
    EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  CacheSpec spec = SpecOf(config);
  spec.layers[3].window = WindowSize(64);
  expect_refused(spec,
                 "holds layer 3 as window 64, 2 heads of 32, K and V; the model needs window "
                 "32, 2 heads of 32, K and V");
  spec = SpecOf(config);
  spec.layers[1].num_kv_heads = 4;
  expect_refused(spec, "holds layer 1 as window full, 4 heads of 32");
  spec = SpecOf(config);
  spec.layers[2].head_dim = 64;
  expect_refused(spec, "holds layer 2 as window full, 2 heads of 64");
  spec = SpecOf(config);
  spec.layers[4].kind = KvKind::kKeyOnly;
  expect_refused(spec, "holds layer 4 as window full, 1 heads of 32, K alone");
  spec = SpecOf(config);
  spec.layers.pop_back();
  expect_refused(spec, "no pool holds layer 4 of the model's 5");
  spec = SpecOf(config);
  spec.layers.push_back(spec.layers.back());
  expect_refused(spec, "holds layer 5, the model has 5 layers");
}

}  // namespace
}  // namespace pagoda
