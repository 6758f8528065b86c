// Cases in which paged attentions have been wrong: boundaries, memory that must not be read, large
// numbers, NaN and infinity, addresses beyond 32 bits.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/numeric.h"
#include "tests/kernels/attention_batch.h"

namespace pagoda::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class AttentionAdversarialTest : public AttentionWayTest {
 protected:
  void ExpectRight(const AttentionBatch& batch, Tolerance least = {0, 0}) {
    SCOPED_TRACE(batch.shape().Describe());
    Tolerance tolerance = ToleranceOf(batch.shape(), isa(), matrices());
    tolerance.output = std::max(tolerance.output, least.output);
    tolerance.lse = std::max(tolerance.lse, least.lse);
    const AttentionRows expected = batch.Expected();
    for (const cpu::FetchAhead fetch : {cpu::FetchAhead::kNear, cpu::FetchAhead::kFar}) {
      SCOPED_TRACE(std::string(FetchAheadName(fetch)));
      ExpectClose(batch, batch.Run({.isa = isa(), .matrices = matrices(), .fetch = fetch}),
                  expected, tolerance);
    }
  }
};

TEST_P(AttentionAdversarialTest, LengthsAroundTheBoundariesOfBlocksTilesPacksAndSplits) {
  std::mt19937 random(1);
  for (const uint32_t tokens_per_block : {8u, 16u, 128u}) {
    if (kShortForm && tokens_per_block == 16) continue;
    for (const int32_t boundary : {8, 16, 32, 64, 128, 256, 512}) {
      BatchShape shape = {.pool_type = ElementType::kBFloat16,
                          .query_type = ElementType::kBFloat16,
                          .num_kv_heads = 1,
                          .group = 3,
                          .tokens_per_block = tokens_per_block,
                          .head_dim = 16};
      for (const int32_t context : {0, 1, boundary - 1, boundary, boundary + 1}) {
        for (const int32_t queries : {0, 1, 4, 5, 6, 65}) {
          if (queries <= context) shape.lengths.push_back({queries, context});
        }
      }
      ExpectRight(AttentionBatch(shape, random));
      if (HasFailure()) return;
    }
  }
}

TEST_P(AttentionAdversarialTest, AnEmptyBatchIsRight) {
  std::mt19937 random(2);
  ExpectRight(AttentionBatch({.lengths = {}}, random));
  ExpectRight(AttentionBatch({.lengths = {{0, 0}, {0, 20}}}, random));
}

// A key that only some rows see must not affect the results of the other rows.
TEST_P(AttentionAdversarialTest, WhatOthersSeeMayBeNaNOrInfinite) {
  std::mt19937 random(3);
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16,
                                 ElementType::kBFloat16, ElementType::kFloat8E5M2}) {
    for (const uint32_t group : {1u, 3u}) {
      for (const int32_t queries : {2, 4, 40}) {
        for (const float number : {kNaN, kInfinity}) {
          BatchShape shape = {.pool_type = type,
                              .num_kv_heads = 2,
                              .group = group,
                              .head_dim = 80,
                              .lengths = {{queries, 70}}};
          AttentionBatch batch(shape, random);
          SCOPED_TRACE(shape.Describe());
          AttentionRows expected = batch.Expected();
          // Conversions to FP8 saturate: the test writes infinity as NaN there.
          const bool saturates = IsFloat8(type);
          for (uint32_t h = 0; h < 2; ++h) {
            batch.FillKey(0, h, 69, kNaN);
            batch.FillValue(0, h, 69, saturates ? kNaN : number);
          }
          AttentionRows rows = batch.Run({.isa = isa(), .matrices = matrices()});
          const size_t last = (size_t(queries) - 1) * batch.num_heads();
          for (size_t i = last * batch.value_dim(); i < rows.output.size(); ++i) {
            EXPECT_TRUE(std::isnan(rows.output[i])) << "the last row sees it";
          }
          for (AttentionRows* r : {&rows, &expected}) {
            r->lse.resize(last);
            r->output.resize(last * batch.value_dim());
          }
          ExpectClose(batch, rows, expected, ToleranceOf(shape, isa(), matrices()));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(AttentionAdversarialTest, WhatOtherHeadsSeeMayBeNaN) {
  std::mt19937 random(4);
  for (const auto& [queries, values_too] :
       {std::pair{1, true}, std::pair{1, false}, std::pair{24, true}, std::pair{24, false}}) {
    // Each of 4 heads sees different blocks of 8 tokens, in addition to its local block.
    BatchShape shape = {.pool_type = ElementType::kBFloat16,
                        .query_type = ElementType::kBFloat16,
                        .num_kv_heads = 1,
                        .group = 4,
                        .head_dim = 64,
                        .mask = {.sparsity = {.block_tokens = 8,
                                              .local_blocks = 3,
                                              .vertical_stride = 4,
                                              .head_step = 1}},
                        .lengths = {{queries, 96}}};
    AttentionBatch batch(shape, random);
    AttentionRows expected = batch.Expected();
    // Head 0 sees block 3: (3 + 1) % 4 = 0.
    for (int64_t key = 24; key < 32; ++key) {
      batch.FillKey(0, 0, key, kNaN);
      if (values_too) batch.FillValue(0, 0, key, kNaN);
    }
    AttentionRows rows = batch.Run({.isa = isa(), .matrices = matrices()});
    for (size_t row = 0; row < rows.lse.size(); row += 4) {
      EXPECT_TRUE(std::isnan(rows.output[row * 64]));
      std::fill_n(rows.output.begin() + static_cast<ptrdiff_t>(row * 64), 64, 0.0f);
      std::fill_n(expected.output.begin() + static_cast<ptrdiff_t>(row * 64), 64, 0.0f);
      rows.lse[row] = expected.lse[row] = 0;
    }
    ExpectClose(batch, rows, expected, ToleranceOf(shape, isa(), matrices()));
  }
}

TEST_P(AttentionAdversarialTest, EntriesBehindATablesEndAreNotRead) {
  std::mt19937 random(5);
  AttentionBatch batch({.tokens_per_block = 8, .lengths = {{1, 41}, {20, 64}}}, random);
  const AttentionRows before = batch.Run({.isa = isa(), .matrices = matrices()});
  for (const int32_t entry : {INT_MAX, INT_MIN, -2}) {
    for (int32_t& slot : batch.tables()) {
      if (slot < 0 || slot == INT_MAX) slot = entry;
    }
    EXPECT_EQ(batch.Run({.isa = isa(), .matrices = matrices()}), before);
  }
}

// Scores of ten thousand: one is far larger than all others, early or late.
TEST_P(AttentionAdversarialTest, HugeScores) {
  std::mt19937 random(6);
  for (const int64_t huge : {int64_t{0}, int64_t{17}, int64_t{298}, int64_t{-1}}) {
    for (const int32_t queries : {1, 12}) {
      BatchShape shape = {.pool_type = ElementType::kBFloat16,
                          .query_type = ElementType::kBFloat16,
                          .group = 4,
                          .head_dim = 64,
                          .scale = huge < 0 ? 1000.0f : 1.0f,
                          .lengths = {{queries, 300}}};
      AttentionBatch batch(shape, random);
      if (huge >= 0) batch.FillKey(0, 0, huge, 1000.0f);
      // exp magnifies the rounding of such scores in fp32.
      ExpectRight(batch, {.output = 2e-2, .lse = 1e-5});
    }
  }
}

TEST_P(AttentionAdversarialTest, EqualScoresGiveTheMeanOfTheValues) {
  std::mt19937 random(7);
  for (const int32_t queries : {1, 30}) {
    AttentionBatch batch({.group = 2, .lengths = {{queries, 100}}}, random);
    for (uint32_t h = 0; h < 2; ++h) {
      for (int64_t key = 0; key < 100; ++key) batch.FillKey(0, h, key, 0.5f);
    }
    ExpectRight(batch);
  }
}

TEST_P(AttentionAdversarialTest, TinyValuesAreNotLost) {
  std::mt19937 random(8);
  AttentionBatch batch({.group = 2, .lengths = {{1, 100}, {30, 30}}}, random);
  for (size_t s = 0; s < 2; ++s) {
    for (uint32_t h = 0; h < 2; ++h) {
      for (int64_t key = 0; key < (s == 0 ? 100 : 30); ++key) batch.FillValue(s, h, key, 1e-39f);
    }
  }
  ExpectRight(batch, {.output = 1e-4, .lse = 0});  // Subnormal: fewer bits.
}

TEST_P(AttentionAdversarialTest, WindowsOfEverySize) {
  std::mt19937 random(9);
  for (const uint32_t window : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 255u, 256u, 257u, 1000u}) {
    for (const uint32_t sinks : {0u, 1u, 4u, 40u}) {
      if (kShortForm && (window + sinks) % 3 != 0) continue;
      BatchShape shape = {.pool_type = ElementType::kFloat16,
                          .num_kv_heads = 1,
                          .group = 4,
                          .head_dim = 16,
                          .mask = {.window_tokens = window, .sink_tokens = sinks},
                          .sinks = sinks == 4,
                          .lengths = {{1, 600}, {5, 333}, {40, 300}}};
      ExpectRight(AttentionBatch(shape, random));
      if (HasFailure()) return;
    }
  }
}

TEST_P(AttentionAdversarialTest, TablesHaveNoBlocksWhereAWindowHasPassed) {
  std::mt19937 random(16);
  for (const uint32_t window : {1u, 16u, 17u, 33u, 250u, 513u}) {
    const BatchShape shape = {.pool_type = ElementType::kBFloat16,
                              .num_kv_heads = 1,
                              .group = 4,
                              .tokens_per_block = 16,
                              .mask = {.window_tokens = window},
                              .lengths = {{1, 1200}, {5, 333}, {100, 300}, {70, 70}}};
    AttentionBatch batch(shape, random);
    const AttentionRows before = batch.Run({.isa = isa(), .matrices = matrices()});
    const uint64_t stride = batch.params().block_table_stride;
    int gone = 0;
    for (size_t s = 0; s < shape.lengths.size(); ++s) {
      const int64_t first_query = shape.lengths[s].context - shape.lengths[s].queries;
      for (int64_t block = 0; (block + 1) * 16 <= first_query - int64_t{window} + 1; ++block) {
        batch.tables()[s * stride + block] = -1;
        ++gone;
      }
    }
    EXPECT_GT(gone, 40);
    EXPECT_EQ(batch.Run({.isa = isa(), .matrices = matrices()}), before);
    ExpectRight(batch);
    // The block of the first key that the first query sees is needed.
    const int64_t needed = (1200 - int64_t{window}) / 16;
    batch.tables()[needed] = -1;
    PagedAttentionParams params = batch.params();
    std::vector<float> rows(uint64_t{176} * 4 * 32);
    params.query = params.output = rows.data();
    const absl::Status refused = cpu::PagedAttention(
        params, nullptr, {.isa = isa(), .decode_isa = isa(), .matrices = matrices()});
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    if (HasFailure()) return;
  }
}

TEST_P(AttentionAdversarialTest, LatentsOfDeepSeeksShape) {
  std::mt19937 random(10);
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat32}) {
    ExpectRight(AttentionBatch({.pool_type = type,
                                .query_type = ElementType::kBFloat16,
                                .num_kv_heads = 1,
                                .group = 16,
                                .tokens_per_block = 64,
                                .head_dim = 576,
                                .value_dim = 512,
                                .latents = true,
                                .lengths = {{1, 130}, {2, 70}}},
                               random));
  }
}

TEST_P(AttentionAdversarialTest, EveryHeadDimAndGroup) {
  std::mt19937 random(11);
  for (const uint32_t head_dim : {64u, 80u, 96u, 128u, 192u, 256u, 1u, 5u, 17u}) {
    for (const uint32_t group : {1u, 2u, 3u, 5u, 6u, 7u, 8u, 16u, 32u}) {
      ExpectRight(AttentionBatch({.pool_type = ElementType::kBFloat16,
                                  .query_type = ElementType::kBFloat16,
                                  .num_kv_heads = 1,
                                  .group = group,
                                  .head_dim = head_dim,
                                  .lengths = {{1, 50}, {3, 35}}},
                                 random));
      if (HasFailure()) return;
    }
  }
}

TEST_P(AttentionAdversarialTest, MoreRowsThanOnePassTakes) {
  std::mt19937 random(14);
  ExpectRight(AttentionBatch({.pool_type = ElementType::kBFloat16,
                              .query_type = ElementType::kBFloat16,
                              .num_kv_heads = 1,
                              .group = 17,
                              .head_dim = 16,
                              .lengths = {{64, 70}}},
                             random));
}

// Address space only: the test touches nothing but the blocks in use.
class SparsePool {
 public:
  explicit SparsePool(size_t bytes) : bytes_(bytes) {
    void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
    data_ = mapping == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapping);
  }
  ~SparsePool() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

TEST_P(AttentionAdversarialTest, PoolsBeyondFourGibibytes) {
  std::mt19937 random(12);
  AttentionBatch batch({.pool_type = ElementType::kBFloat16,
                        .group = 4,
                        .head_dim = 64,
                        .lengths = {{1, 48}, {30, 48}}},
                       random);
  const AttentionRows expected = batch.Run({.isa = isa(), .matrices = matrices()});

  constexpr uint32_t kSlots = 1200;
  constexpr uint64_t kSlotBytes = 16 << 20;  // 18.75 GiB in all; 2^33 elements of 16 bits.
  const SparsePool pool(kSlots * kSlotBytes);
  if (pool.data() == nullptr) GTEST_SKIP() << "no address space of 19 GiB";
  PagedAttentionParams params = batch.params();
  std::vector<int32_t> table(batch.tables());
  int32_t next = kSlots - 1;
  for (int32_t& slot : table) {
    if (slot < 0) continue;
    std::memcpy(pool.data() + next * kSlotBytes,
                params.kv.keys + slot * params.kv.slot_stride_bytes, params.kv.slot_stride_bytes);
    slot = next;
    next -= 190;  // The slots lie on both sides of 4 GiB and of 16 GiB.
  }
  params.kv.values = pool.data() + (params.kv.values - params.kv.keys);
  params.kv.keys = pool.data();
  params.kv.slot_stride_bytes = kSlotBytes;
  params.kv.num_slots = kSlots;
  params.block_tables = table;
  std::vector<float> output(expected.output.size());
  params.query = batch.queries().data();
  params.output = output.data();
  params.query_token_stride = params.output_token_stride = uint64_t{batch.num_heads()} * 64;
  ASSERT_TRUE(cpu::PagedAttention(params, nullptr,
                                  {.isa = isa(), .decode_isa = isa(), .matrices = matrices()})
                  .ok());
  EXPECT_EQ(output, expected.output);
}

TEST_P(AttentionAdversarialTest, ManySequencesAndALongOne) {
  std::mt19937 random(13);
  BatchShape shape = {.num_kv_heads = 1, .group = 1, .head_dim = 16, .lengths = {{1, 16}}};
  AttentionBatch batch(shape, random);
  const AttentionRows one = batch.Run({.isa = isa(), .matrices = matrices()});
  constexpr int32_t kSequences = 70'000;
  std::vector<int32_t> starts(kSequences + 1);
  for (int32_t s = 0; s <= kSequences; ++s) starts[s] = s;
  const std::vector<int32_t> contexts(kSequences, 16);
  const std::vector<int32_t> tables(kSequences, batch.tables()[0]);
  std::vector<float> query, output(kSequences * 16);
  for (int32_t s = 0; s < kSequences; ++s) {
    query.insert(query.end(), batch.queries().begin(), batch.queries().end());
  }
  PagedAttentionParams params = batch.params();
  params.query = query.data();
  params.output = output.data();
  params.query_token_stride = params.output_token_stride = 16;
  params.query_starts = starts;
  params.context_lengths = contexts;
  params.block_tables = tables;
  params.block_table_stride = 1;
  ASSERT_TRUE(cpu::PagedAttention(params, nullptr,
                                  {.isa = isa(), .decode_isa = isa(), .matrices = matrices()})
                  .ok());
  for (int32_t s = 0; s < kSequences; ++s) {
    ASSERT_EQ(std::memcmp(output.data() + s * 16, one.output.data(), 64), 0) << "sequence " << s;
  }

  // One block, a hundred thousand times: the weights equal those of the block alone.
  const std::vector<int32_t> long_table(100'000, batch.tables()[0]);
  const std::vector<int32_t> long_context = {1'600'000};
  const std::vector<int32_t> long_starts = {0, 1};
  params.query_starts = long_starts;
  params.context_lengths = long_context;
  params.block_tables = long_table;
  params.block_table_stride = long_table.size();
  float lse = 0;
  params.lse = &lse;
  ASSERT_TRUE(cpu::PagedAttention(params, nullptr,
                                  {.isa = isa(), .decode_isa = isa(), .matrices = matrices()})
                  .ok());
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(output[i], one.output[i], 1e-4);
  EXPECT_NEAR(lse, one.lse[0] + std::log(1e5), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Ways, AttentionAdversarialTest, testing::ValuesIn(Ways()),
                         [](const auto& way) { return WayName(way.param); });

}  // namespace
}  // namespace pagoda::kernels
