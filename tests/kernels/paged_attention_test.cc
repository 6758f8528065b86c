// The CPU's paged attention against the fp64 reference, and the identities that hold bit by bit.
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/cache/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/test_pool.h"

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

struct SequenceLengths {
  int32_t queries;
  int32_t context;
};

// A batch over a pool in which everything outside the contexts is NaN.
class Batch {
 public:
  Batch(PoolShape shape, uint32_t group, std::vector<SequenceLengths> lengths, std::mt19937& random)
      : lengths_(std::move(lengths)), pool_(WithSlots(shape, random)) {
    num_heads_ = shape.num_kv_heads * group;
    query_starts_ = {0};
    const std::vector<int32_t> slots = ShuffledSlots(pool_.kv().num_slots, random);
    auto next_slot = slots.begin();
    table_stride_ = 2;  // At least two columns of padding.
    for (const auto& l : lengths_) table_stride_ = std::max(table_stride_, Blocks(l.context) + 2);
    tables_.assign(lengths_.size() * table_stride_, -1);
    for (size_t s = 0; s < lengths_.size(); ++s) {
      query_starts_.push_back(query_starts_.back() + lengths_[s].queries);
      contexts_.push_back(lengths_[s].context);
      for (uint64_t b = 0; b < Blocks(lengths_[s].context); ++b) {
        tables_[s * table_stride_ + b] = *next_slot++;
      }
      WriteContext(s, random);
    }
    query_ = RandomFloats(uint64_t(query_starts_.back()) * row(), random);
  }

  uint64_t row() const { return uint64_t{num_heads_} * pool_.kv().head_dim; }
  TestPool& pool() { return pool_; }

  PagedAttentionParams Params(std::vector<float>& output) const {
    output.assign(query_.size() + 1, 0.0f);  // Never empty, so that its pointer is not null.
    return {.query = query_.empty() ? output.data() : query_.data(),
            .output = output.data(),
            .query_token_stride = row(),
            .output_token_stride = row(),
            .num_heads = num_heads_,
            .scale = 1.0f / std::sqrt(static_cast<float>(pool_.kv().head_dim)),
            .query_starts = query_starts_,
            .context_lengths = contexts_,
            .block_tables = tables_,
            .block_table_stride = table_stride_,
            .kv = pool_.kv()};
  }

 private:
  uint64_t Blocks(int32_t context) const {
    return (context + pool_.kv().tokens_per_block - 1) / pool_.kv().tokens_per_block;
  }

  // The slots that the contexts need, and some that stay NaN.
  PoolShape WithSlots(PoolShape shape, std::mt19937& random) const {
    shape.num_slots = 1 + random() % 4;
    for (const auto& l : lengths_) {
      shape.num_slots += (l.context + shape.tokens_per_block - 1) / shape.tokens_per_block;
    }
    return shape;
  }

  void WriteContext(size_t s, std::mt19937& random) {
    const KvLayer& kv = pool_.kv();
    const uint64_t kv_row = uint64_t{kv.num_kv_heads} * kv.head_dim;
    const std::vector<float> keys = RandomFloats(contexts_[s] * kv_row + 1, random);
    const std::vector<float> values = RandomFloats(contexts_[s] * kv_row + 1, random);
    std::vector<int64_t> token_slots;
    for (int32_t t = 0; t < contexts_[s]; ++t) {
      const int64_t slot = tables_[s * table_stride_ + t / kv.tokens_per_block];
      token_slots.push_back(slot * kv.tokens_per_block + t % kv.tokens_per_block);
    }
    ASSERT_TRUE(cpu::WriteCache({.rows = {.keys = keys.data(),
                                          .values = values.data(),
                                          .key_token_stride = kv_row,
                                          .value_token_stride = kv_row},
                                 .token_slots = token_slots,
                                 .kv = kv})
                    .ok());
  }

  std::vector<SequenceLengths> lengths_;
  TestPool pool_;
  uint32_t num_heads_ = 0;
  uint64_t table_stride_ = 0;
  std::vector<int32_t> query_starts_;
  std::vector<int32_t> contexts_;
  std::vector<int32_t> tables_;
  std::vector<float> query_;
};

// Both read the same rounded K and V. The tolerance is thus that of fp32 sums over a few hundred
// tokens of unit variance, for every element type of the pool. Products of bf16 pairs are coarser;
// attention_random_test tests them.
constexpr float kTolerance = 2e-5f;

void ExpectLikeReference(const Batch& batch) {
  std::vector<float> output;
  std::vector<float> expected;
  const cpu::Execution fp32{.isa = std::min(cpu::FastestIsa(), cpu::Isa::kAvx512)};
  ASSERT_TRUE(cpu::PagedAttention(batch.Params(output), nullptr, fp32).ok());
  ASSERT_TRUE(reference::PagedAttention(batch.Params(expected)).ok());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(expected[i]));
    ASSERT_NEAR(output[i], expected[i], kTolerance) << "element " << i;
  }
}

PoolShape RandomShape(std::mt19937& random) {
  constexpr uint32_t kHeadDims[] = {1, 5, 8, 16, 32, 64, 80, 128};
  constexpr uint32_t kTokensPerBlock[] = {1, 2, 8, 16, 32, 64, 128};
  return {.type = static_cast<ElementType>(random() % 3),
          .num_kv_heads = 1 + static_cast<uint32_t>(random() % 4),
          .tokens_per_block = kTokensPerBlock[random() % 7],
          .head_dim = kHeadDims[random() % 8]};
}

TEST(PagedAttentionTest, AgreesWithTheReferenceOnRandomBatches) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<SequenceLengths> lengths(1 + random() % 4);
    for (SequenceLengths& l : lengths) {
      l.context = static_cast<int32_t>(random() % 100);
      l.queries = l.context == 0 ? 0 : static_cast<int32_t>(random() % (l.context + 1));
      if (l.context > 0 && random() % 3 == 0) l.queries = 1;
    }
    const uint32_t group = 1 + random() % 5;
    ExpectLikeReference(Batch(RandomShape(random), group, lengths, random));
    if (HasFatalFailure()) return;
  }
}

TEST(PagedAttentionTest, AgreesWithTheReferenceAroundBlockBoundaries) {
  std::mt19937 random(7);
  for (const int32_t boundary : {16, 32, 48}) {
    for (const int32_t context : {boundary - 1, boundary, boundary + 1}) {
      for (const int32_t queries : {1, 15, 16, 17, context}) {
        if (queries > context) continue;
        ExpectLikeReference(
            Batch({.type = ElementType::kBFloat16}, 2, {{queries, context}}, random));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(PagedAttentionTest, TheFirstTokenGetsItsOwnValue) {
  std::mt19937 random(8);
  Batch batch({.num_kv_heads = 1, .head_dim = 4}, 1, {{1, 1}}, random);
  std::vector<float> output;
  const PagedAttentionParams params = batch.Params(output);
  ASSERT_TRUE(cpu::PagedAttention(params).ok());
  const int64_t token_slot = int64_t{params.block_tables[0]} * 16;
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(output[i], batch.pool().Read(params.kv.values, token_slot, 0, i));
  }
}

TEST(PagedAttentionTest, LargeScoresDoNotOverflow) {
  std::mt19937 random(9);
  Batch batch({}, 2, {{40, 40}}, random);
  std::vector<float> output;
  std::vector<float> expected;
  PagedAttentionParams params = batch.Params(output);
  params.scale = 200.0f;
  ASSERT_TRUE(cpu::PagedAttention(params).ok());
  params.output = (expected = output).data();
  ASSERT_TRUE(reference::PagedAttention(params).ok());
  for (size_t i = 0; i < expected.size(); ++i) {
    // exp() magnifies the rounding of scores of a few thousand.
    ASSERT_NEAR(output[i], expected[i], 1e-2f);
  }
}

TEST(PagedAttentionTest, TheSlotsOfTheBlocksDoNotMatter) {
  const auto run = [](uint32_t shuffle_seed) {
    std::mt19937 random(12);
    Batch batch({.type = ElementType::kBFloat16}, 2, {{30, 70}}, random);
    std::vector<float> output;
    PagedAttentionParams params = batch.Params(output);
    // The same blocks, moved to other slots of another pool.
    TestPool moved({.type = ElementType::kBFloat16, .num_slots = params.kv.num_slots});
    std::mt19937 shuffle(shuffle_seed);
    const std::vector<int32_t> target = ShuffledSlots(params.kv.num_slots, shuffle);
    std::vector<int32_t> table(params.block_tables.begin(), params.block_tables.end());
    for (int32_t& slot : table) {
      if (slot < 0) continue;
      std::copy_n(batch.pool().bytes().begin() + slot * params.kv.slot_stride_bytes,
                  params.kv.slot_stride_bytes,
                  moved.bytes().begin() + target[slot] * params.kv.slot_stride_bytes);
      slot = target[slot];
    }
    params.kv = moved.kv();
    params.block_tables = table;
    EXPECT_TRUE(cpu::PagedAttention(params).ok());
    return output;
  };
  EXPECT_EQ(run(1), run(2));
}

TEST(PagedAttentionTest, WorksInPlace) {
  std::mt19937 random(13);
  Batch batch({}, 2, {{20, 33}, {1, 5}}, random);
  std::vector<float> apart;
  std::vector<float> in_place;
  PagedAttentionParams params = batch.Params(apart);
  ASSERT_TRUE(cpu::PagedAttention(params).ok());
  const float* query = static_cast<const float*>(params.query);
  in_place.assign(query, query + 21 * batch.row());
  params.output = in_place.data();
  params.query = in_place.data();
  ASSERT_TRUE(cpu::PagedAttention(params).ok());
  apart.pop_back();
  EXPECT_EQ(in_place, apart);
}

TEST(PagedAttentionTest, RefusesABadArgumentByName) {
  std::mt19937 random(14);
  Batch batch({}, 2, {{2, 40}, {1, 3}}, random);
  std::vector<float> output;
  const PagedAttentionParams good = batch.Params(output);
  ASSERT_TRUE(cpu::PagedAttention(good).ok());
  const auto refused = [](const PagedAttentionParams& params, const std::string& name) {
    for (const absl::Status& status :
         {cpu::PagedAttention(params), reference::PagedAttention(params)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
  };
  PagedAttentionParams bad = good;
  bad.query = nullptr;
  refused(bad, "query is null");
  (bad = good).num_heads = 3;
  refused(bad, "num_heads is 3");
  (bad = good).output_token_stride = batch.row() - 1;
  refused(bad, "output_token_stride");
  (bad = good).kv.slot_stride_bytes -= 4100;
  refused(bad, "slot_stride_bytes");
  (bad = good).block_table_stride = 1;
  refused(bad, "block_tables");

  const std::vector<int32_t> descending = {0, 2, 1};
  (bad = good).query_starts = descending;
  refused(bad, "query_starts descends at sequence 1");
  const std::vector<int32_t> late = {1, 2, 3};
  (bad = good).query_starts = late;
  refused(bad, "query_starts begins with 1");
  const std::vector<int32_t> short_context = {1, 3};
  (bad = good).context_lengths = short_context;
  refused(bad, "context_lengths[0] is 1");
  const std::vector<int32_t> long_context = {40, 200};
  (bad = good).context_lengths = long_context;
  refused(bad, "block_tables");
  std::vector<int32_t> tables(good.block_tables.begin(), good.block_tables.end());
  tables[1] = static_cast<int32_t>(good.kv.num_slots);
  (bad = good).block_tables = tables;
  refused(bad, "block_tables[0][1]");
  tables[1] = -1;
  refused(bad, "block_tables[0][1] is -1");
}

}  // namespace
}  // namespace pagoda::kernels
