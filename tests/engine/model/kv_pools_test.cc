#include "engine/model/kv/kv_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/cache/cache.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two windows; the full one has two pools.
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
    // A layer's bytes in slot 2 are those of its pool.
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

// One layer of one KV head of 24 elements.
ModelConfig OneLayer(LayerConfig layer) {
  ModelConfig config;
  config.num_heads = 2;
  config.head_dim = 24;
  config.rotaries.resize(1);
  config.layers = {layer};
  return config;
}

std::vector<float> RandomRows(uint64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

// Causal attention of 2 query heads over 40 tokens in the blocks 2, 0 and 1.
constexpr uint32_t kTokens = 40;
constexpr int32_t kStarts[] = {0, kTokens};
constexpr int32_t kContexts[] = {kTokens};
constexpr int32_t kTable[] = {2, 0, 1};
kernels::PagedAttentionParams AttentionOver(const kernels::KvLayer& kv, const float* query,
                                            float* output) {
  return {.query = query,
          .output = output,
          .query_token_stride = uint64_t{2} * kv.head_dim,
          .output_token_stride = uint64_t{2} * kv.value_elements(),
          .num_heads = 2,
          .scale = 0.2f,
          .query_starts = kStarts,
          .context_lengths = kContexts,
          .block_tables = kTable,
          .block_table_stride = 3,
          .kv = kv};
}

// The place of token t of the sequence.
std::vector<int64_t> TokenSlots() {
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < kTokens; ++t) slots.push_back(kTable[t / 16] * 16 + t % 16);
  return slots;
}

// The reference's result for the same K and V in separate rows: [token][24], [token][value].
std::vector<float> Expected(std::vector<float> keys, std::vector<float> values, uint32_t value_dim,
                            const std::vector<float>& query) {
  keys.resize(48 * 24);  // Three blocks of 16 tokens, in the sequence's order.
  std::vector<float> wide(48 * 24);
  for (uint32_t t = 0; t < kTokens; ++t) {
    std::copy_n(values.begin() + t * value_dim, value_dim, wide.begin() + t * 24);
  }
  const kernels::KvLayer flat = {.keys = reinterpret_cast<std::byte*>(keys.data()),
                                 .values = reinterpret_cast<std::byte*>(wide.data()),
                                 .num_slots = 3,
                                 .num_kv_heads = 1,
                                 .tokens_per_block = 16,
                                 .head_dim = 24,
                                 .value_dim = value_dim,
                                 .slot_stride_bytes = 16 * 24 * sizeof(float),
                                 .head_stride_bytes = 16 * 24 * sizeof(float),
                                 .token_stride_bytes = 24 * sizeof(float)};
  std::vector<float> output(kTokens * 2 * value_dim);
  kernels::PagedAttentionParams params = AttentionOver(flat, query.data(), output.data());
  constexpr int32_t kInOrder[] = {0, 1, 2};
  params.block_tables = kInOrder;
  EXPECT_TRUE(kernels::reference::PagedAttention(params).ok());
  return output;
}

void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected,
                float tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
}

TEST(KvPoolsTest, LatentAttentionReadsAPoolOfKeys) {
  const ModelConfig config =
      OneLayer({.num_kv_heads = 1, .kind = KvKind::kKeyOnly, .value_dim = 16});
  CacheSpec spec = SpecOf(config);
  spec.layers[0].kind = KvKind::kKeyOnly;
  spec.layers[0].dtype = DType::kFloat32;
  TestCache cache(std::move(spec), {.primary_blocks = 3});
  const auto client = cache.OpenClient();
  const absl::StatusOr<KvPools> pools = KvPools::Map(*client, config);
  ASSERT_TRUE(pools.ok()) << pools.status();
  const kernels::KvLayer& layer = pools->layers()[0];
  EXPECT_EQ(layer.values, layer.keys);
  EXPECT_EQ(layer.value_elements(), 16u);
  EXPECT_EQ(layer.slot_stride_bytes, 16 * 24 * sizeof(float));

  const std::vector<float> keys = RandomRows(kTokens * 24, 1);
  const std::vector<float> query = RandomRows(kTokens * 2 * 24, 2);
  const std::vector<int64_t> slots = TokenSlots();
  ASSERT_TRUE(kernels::cpu::WriteCache({.rows = {.keys = keys.data(), .key_token_stride = 24},
                                        .token_slots = slots,
                                        .kv = layer})
                  .ok());
  std::vector<float> output(kTokens * 2 * 16);
  const absl::Status attended =
      kernels::cpu::PagedAttention(AttentionOver(layer, query.data(), output.data()));
  ASSERT_TRUE(attended.ok()) << attended;
  std::vector<float> values;
  for (uint32_t t = 0; t < kTokens; ++t) {
    values.insert(values.end(), keys.begin() + t * 24, keys.begin() + t * 24 + 16);
  }
  ExpectNear(output, Expected(keys, values, 16, query), 1e-5f);
}

TEST(KvPoolsTest, Float8IsReadByTheScalesOfItsBlocks) {
  const ModelConfig config = OneLayer({.num_kv_heads = 1});
  CacheSpec spec = SpecOf(config);
  spec.layers[0].dtype = DType::kFloat8E4M3;
  TestCache cache(std::move(spec), {.primary_blocks = 3});
  const auto client = cache.OpenClient();
  const absl::StatusOr<KvPools> pools = KvPools::Map(*client, config);
  ASSERT_TRUE(pools.ok()) << pools.status();
  const kernels::KvLayer& layer = pools->layers()[0];
  EXPECT_EQ(layer.type, kernels::ElementType::kFloat8E4M3);
  ASSERT_EQ(pools->pools().size(), 2u);
  // They differ between blocks, K and V; elements times them are exact.
  for (uint32_t slot = 0; slot < 3; ++slot) {
    const absl::Span<std::byte> bytes = cache.pools().pool(0, 1).slot(SlotIndex(slot));
    ASSERT_EQ(bytes.size(), 2 * sizeof(float));
    const float scales[] = {std::exp2(static_cast<float>(slot) - 9),
                            4.0f * static_cast<float>(slot + 1)};
    std::memcpy(bytes.data(), scales, sizeof(scales));
  }

  // Far below the range of e4m3 without a scale, and with no more bits than it has.
  std::vector<float> keys = RandomRows(kTokens * 24, 3), values = RandomRows(kTokens * 24, 4);
  for (uint32_t t = 0; t < kTokens; ++t) {
    const float value_scale = 4.0f * static_cast<float>(kTable[t / 16] + 1);
    for (uint32_t i = t * 24; i < (t + 1) * 24; ++i) {
      keys[i] = std::exp2(-9.0f) * std::round(keys[i] * 2) / 2;
      values[i] = value_scale * std::round(values[i] * 2) / 2;
    }
  }
  const std::vector<float> query = RandomRows(kTokens * 2 * 24, 5);
  const std::vector<int64_t> slots = TokenSlots();
  ASSERT_TRUE(kernels::cpu::WriteCache({.rows = {.keys = keys.data(),
                                                 .values = values.data(),
                                                 .key_token_stride = 24,
                                                 .value_token_stride = 24},
                                        .token_slots = slots,
                                        .kv = layer})
                  .ok());
  std::vector<float> output(kTokens * 2 * 24);
  kernels::PagedAttentionParams params = AttentionOver(layer, query.data(), output.data());
  params.scale = 200;  // Without it, such small keys would all get the same weight.
  const absl::Status attended = kernels::cpu::PagedAttention(params);
  ASSERT_TRUE(attended.ok()) << attended;
  std::vector<float> larger = keys;
  for (float& key : larger) key *= 1000;  // The factor is 200 / 0.2.
  ExpectNear(output, Expected(larger, values, 24, query), 1e-3f);
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
  expect_refused(spec, "holds layer 4 as window full, 1 heads of 32, K only");
  spec = SpecOf(config);
  spec.layers[4] = {.kind = KvKind::kOpaque, .bytes_per_block = 100};
  expect_refused(spec, "holds layer 4 as opaque bytes, which no kernel reads");
  spec = SpecOf(config);
  spec.layers[0].dtype = DType::kUint8;
  expect_refused(spec, "holds layer 0 as uint8, which no kernel reads");
  spec = SpecOf(config);
  spec.layers.pop_back();
  expect_refused(spec, "no pool holds layer 4 of the model's 5");
  spec = SpecOf(config);
  spec.layers.push_back(spec.layers.back());
  expect_refused(spec, "holds layer 5, but the model has 5 layers");

  ModelConfig latent = OneLayer({.num_kv_heads = 1, .kind = KvKind::kKeyOnly});
  TestCache cache(SpecOf(latent), {.primary_blocks = 3});
  const auto client = cache.OpenClient();
  EXPECT_THAT(std::string(KvPools::Map(*client, latent).status().message()),
              HasSubstr("1 heads of 24, K and V; the model needs window full, 1 heads of 24, K "
                        "only"));
}

}  // namespace
}  // namespace pagoda
