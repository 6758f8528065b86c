// Attention over a token-flat pool has the bits of attention over blocks: only strides differ.
#include "engine/model/kv/token_flat_layers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "engine/engine.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/cache/cache.h"
#include "pools/token_flat_pool.h"
#include "tests/base/require.h"
#include "tests/engine/fixtures/golden.h"
#include "tests/engine/fixtures/test_cache.h"

namespace pagoda {
namespace {

struct Case {
  DType dtype;
  uint32_t num_kv_heads;
  uint32_t group;
  uint32_t head_dim;
  uint32_t tokens_per_block;
  uint32_t value_dim;  // 0: K and V. Otherwise K only, whose first elements are the values.
};

// The last one is a latent.
constexpr Case kCases[] = {
    {DType::kFloat32, 2, 2, 32, 16, 0},   {DType::kBFloat16, 4, 1, 64, 32, 0},
    {DType::kFloat16, 1, 8, 80, 8, 0},    {DType::kFloat8E4M3, 2, 4, 128, 16, 0},
    {DType::kFloat8E5M2, 3, 2, 48, 4, 0}, {DType::kBFloat16, 2, 3, 128, 1, 0},
    {DType::kBFloat16, 1, 16, 96, 16, 64}};
constexpr uint32_t kNumSlots = 192;
// The queries of three sequences: a whole prompt, a chunk of one, and a decode.
const std::vector<int32_t> kQueryStarts = {0, 37, 57, 58};
const std::vector<int32_t> kContexts = {37, 50, 61};
constexpr uint64_t kTableStride = 64;

std::vector<float> Random(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

// Three sequences in blocks of a pool, and what a call over them returns.
class Sequences {
 public:
  explicit Sequences(const Case& c) : case_(c), random_(c.head_dim) {
    std::vector<int32_t> slots(kNumSlots);
    for (uint32_t i = 0; i < kNumSlots; ++i) slots[i] = static_cast<int32_t>(i);
    std::shuffle(slots.begin(), slots.end(), random_);
    tables_.assign(kContexts.size() * kTableStride, -1);
    starts_ = {0};
    for (size_t s = 0; s < kContexts.size(); ++s) {
      const auto tokens = static_cast<uint32_t>(kContexts[s]);
      for (uint32_t b = 0; b * c.tokens_per_block < tokens; ++b) {
        tables_[s * kTableStride + b] = slots.back();
        slots.pop_back();
      }
      starts_.push_back(starts_.back() + kContexts[s]);
    }
    const size_t tokens = static_cast<size_t>(starts_.back());
    keys_ = Random(tokens * c.num_kv_heads * c.head_dim, random_);
    values_ = Random(tokens * c.num_kv_heads * value_dim(), random_);
    queries_ = Random(static_cast<size_t>(kQueryStarts.back()) * num_heads() * c.head_dim, random_);
  }

  uint32_t num_heads() const { return case_.num_kv_heads * case_.group; }
  uint32_t value_dim() const { return case_.value_dim == 0 ? case_.head_dim : case_.value_dim; }

  // Writes K and V, attends, and reads K back. Returns both results.
  std::vector<std::vector<float>> Run(const kernels::KvLayer& kv) const {
    const bool latent = case_.value_dim != 0;
    const std::vector<int32_t> first_positions(kContexts.size(), 0);
    const absl::Status written = kernels::cpu::FillCache(
        {.rows = {.keys = keys_.data(),
                  .values = latent ? nullptr : values_.data(),
                  .key_token_stride = uint64_t{case_.num_kv_heads} * case_.head_dim,
                  .value_token_stride = uint64_t{case_.num_kv_heads} * value_dim()},
         .starts = starts_,
         .first_positions = first_positions,
         .block_tables = tables_,
         .block_table_stride = kTableStride,
         .kv = kv});
    EXPECT_TRUE(written.ok()) << written;
    std::vector<float> output(static_cast<size_t>(kQueryStarts.back()) * num_heads() * value_dim());
    const absl::Status attended =
        kernels::cpu::PagedAttention({.query = queries_.data(),
                                      .output = output.data(),
                                      .query_token_stride = uint64_t{num_heads()} * case_.head_dim,
                                      .output_token_stride = uint64_t{num_heads()} * value_dim(),
                                      .num_heads = num_heads(),
                                      .scale = 0.1f,
                                      .query_starts = kQueryStarts,
                                      .context_lengths = kContexts,
                                      .block_tables = tables_,
                                      .block_table_stride = kTableStride,
                                      .kv = kv});
    EXPECT_TRUE(attended.ok()) << attended;
    std::vector<float> keys(keys_.size());
    const absl::Status gathered = kernels::cpu::GatherCache({.keys = keys.data(),
                                                             .starts = starts_,
                                                             .block_tables = tables_,
                                                             .block_table_stride = kTableStride,
                                                             .kv = kv});
    EXPECT_TRUE(gathered.ok()) << gathered;
    return {output, keys};
  }

 private:
  const Case case_;
  std::mt19937 random_;
  std::vector<int32_t> tables_;
  std::vector<int32_t> starts_;
  std::vector<float> keys_, values_, queries_;
};

TEST(TokenFlatLayersTest, AttentionHasTheBitsOfAttentionOverBlocks) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << DTypeName(c.dtype) << ", head_dim " << c.head_dim);
    const PoolLayout layout{.layers = {0, 1, 2},
                            .num_kv_heads = c.num_kv_heads,
                            .head_dim = c.head_dim,
                            .dtype = c.dtype,
                            .kv_factor = c.value_dim == 0 ? 2u : 1u,
                            .tokens_per_block = c.tokens_per_block};
    const auto make = [&](const char* name) {
      return Require(
          SharedMemoryPool::Create({.shm_name = absl::StrCat("/pagoda-test-", getpid(), "-", name),
                                    .layout = layout,
                                    .num_slots = kNumSlots,
                                    .pages = {.reservation = Reservation::kSparse}}));
    };
    const std::unique_ptr<SharedMemoryPool> blocks = make("blocks");
    const std::unique_ptr<SharedMemoryPool> memory = make("tokens");
    TokenFlatPool flat(memory.get());
    ASSERT_TRUE(flat.Reserve(flat.layout().token_slots).ok());
    // Bytes that no token wrote are NaN.
    for (SharedMemoryPool* const pool : {blocks.get(), memory.get()}) {
      std::fill(pool->bytes().begin(), pool->bytes().end(), std::byte{0xff});
    }
    const Sequences sequences(c);
    for (uint64_t layer = 0; layer < 3; ++layer) {
      kernels::KvLayer in_blocks = LayerOfPool(layout, layer, blocks->bytes().data(), kNumSlots);
      kernels::KvLayer in_tokens =
          LayerOfTokenFlatPool(layout, layer, memory->bytes().data(), kNumSlots);
      in_blocks.value_dim = in_tokens.value_dim = c.value_dim;
      ASSERT_EQ(in_tokens.keys, flat.part(layer, 0).data());
      ASSERT_EQ(in_tokens.values, flat.part(layer, c.value_dim == 0 ? 1 : 0).data());
      const std::vector<std::vector<float>> expected = sequences.Run(in_blocks);
      EXPECT_EQ(sequences.Run(in_tokens), expected);
      EXPECT_NE(expected[0], std::vector<float>(expected[0].size(), 0.0f));
    }
  }
}

// The samples of a request fork its sequence. Over blocks they share the prompt and copy on write;
// in a token-flat pool the token slots and the scales are copied.
TEST(TokenFlatLayersTest, SamplesAreThoseOfThePagedCache) {
  const Golden golden = ReadGolden(kTinyModel);
  for (const DType dtype : {DType::kFloat32, DType::kFloat8E4M3}) {
    const CacheSpec spec = Require(Engine::CacheSpecForModel(GoldenDir(kTinyModel), 4, dtype));
    const auto samples = [&](std::unique_ptr<CacheClient> client) {
      const std::unique_ptr<Engine> engine = Require(Engine::Create(
          {.model_dir = GoldenDir(kTinyModel), .cpu = {.num_threads = 1}}, std::move(client)));
      GenerateRequest request{.prompt = golden.prompt, .max_new_tokens = 20, .num_samples = 4};
      request.sampling = {.temperature = 0.9f, .seed = 5};
      std::vector<std::vector<TokenId>> answers(request.num_samples);
      Require(engine->Generate(request, [&](const GeneratedToken& token) {
        answers[token.sample].push_back(token.token);
        return true;
      }));
      return answers;
    };
    TestCache paged(spec, {.primary_blocks = 256});
    const std::vector<std::vector<TokenId>> expected = samples(paged.OpenClient());
    EXPECT_NE(expected[0], expected[1]) << "the samples differ";
    EXPECT_EQ(samples(Require(MakeBasicCacheClient({.spec = spec,
                                                    .max_sequences = 8,
                                                    .max_sequence_tokens = 128,
                                                    .pages = {.reservation = Reservation::kSparse},
                                                    .arrangement = KvArrangement::kTokenFlat}))),
              expected)
        << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace pagoda
