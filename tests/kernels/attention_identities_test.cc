// Promises of CPU attention beyond correct results: the same bits in every batch, on any number of
// threads, and wherever the blocks lie; and results that other calls yield too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/attention_batch.h"

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

class AttentionIdentitiesTest : public AttentionWayTest {};

// Long enough for splits and packs: a decode, a chunk of few tokens, and a prompt.
BatchShape MixedShape() {
  return {.pool_type = ElementType::kBFloat16,
          .group = 4,
          .head_dim = 64,
          .lengths = {{1, 1300}, {70, 90}, {3, 700}, {1, 40}}};
}

// The rows of the batch's sequence s.
AttentionRows RowsOf(const AttentionBatch& batch, const AttentionRows& rows, size_t s) {
  AttentionRows some;
  for (size_t row = 0; row < rows.lse.size(); ++row) {
    if (batch.sequence(static_cast<uint32_t>(row / batch.num_heads())) != s) continue;
    some.lse.push_back(rows.lse[row]);
    const float* output = rows.output.data() + row * batch.value_dim();
    some.output.insert(some.output.end(), output, output + batch.value_dim());
  }
  return some;
}

// Copies the queries, keys and values of one batch's sequence into another's.
void CopySequence(AttentionBatch& from, size_t from_sequence, AttentionBatch& to,
                  size_t to_sequence, int32_t context) {
  const BatchShape& shape = from.shape();
  for (uint32_t h = 0; h < shape.num_kv_heads; ++h) {
    for (int32_t key = 0; key < context; ++key) {
      const size_t bytes = shape.head_dim * ElementBytes(shape.pool_type);
      std::memcpy(to.Key(to_sequence, h, key), from.Key(from_sequence, h, key), bytes);
      std::memcpy(to.Value(to_sequence, h, key), from.Value(from_sequence, h, key), bytes);
    }
  }
}

// Copies the query tokens first to first + count - 1 of one batch to the first ones of another.
void CopyQueries(AttentionBatch& from, uint32_t first, AttentionBatch& to, uint32_t count) {
  const size_t row = size_t{from.num_heads()} * from.shape().head_dim;
  std::copy_n(from.queries().begin() + static_cast<ptrdiff_t>(first * row), count * row,
              to.queries().begin());
}

TEST_P(AttentionIdentitiesTest, ThreadsChangeNoBit) {
  std::mt19937 random(1);
  const AttentionBatch batch(MixedShape(), random);
  const AttentionRows alone = batch.Run({.isa = isa(), .matrices = matrices()});
  for (const uint32_t num_threads : {1u, 2u, 3u, 8u}) {
    cpu::ThreadPool threads(num_threads);
    // A plan for another number of threads also works.
    const AttentionPlan plan = cpu::PlanForCpu(batch.plan_shape(), {.threads = nullptr});
    for (int run = 0; run < 3; ++run) {
      EXPECT_EQ(batch.Run({.isa = isa(), .matrices = matrices(), .threads = &threads}), alone)
          << num_threads;
      EXPECT_EQ(
          batch.Run({.isa = isa(), .matrices = matrices(), .threads = &threads, .plan = &plan}),
          alone);
    }
  }
}

TEST_P(AttentionIdentitiesTest, WhatIsFetchedAheadChangesNoBit) {
  std::mt19937 random(7);
  const AttentionBatch batch(MixedShape(), random);
  const AttentionRows near =
      batch.Run({.isa = isa(), .matrices = matrices(), .fetch = cpu::FetchAhead::kNear});
  EXPECT_EQ(batch.Run({.isa = isa(), .matrices = matrices(), .fetch = cpu::FetchAhead::kFar}),
            near);
}

TEST_P(AttentionIdentitiesTest, TheRestOfTheBatchChangesNoBit) {
  std::mt19937 random(2);
  AttentionBatch batch(MixedShape(), random);
  const AttentionRows together = batch.Run({.isa = isa(), .matrices = matrices()});
  uint32_t first = 0;
  for (size_t s = 0; s < batch.shape().lengths.size(); ++s) {
    BatchShape shape = batch.shape();
    shape.lengths = {batch.shape().lengths[s]};
    AttentionBatch alone(shape, random);
    CopySequence(batch, s, alone, 0, shape.lengths[0].context);
    CopyQueries(batch, first, alone, shape.lengths[0].queries);
    first += shape.lengths[0].queries;
    EXPECT_EQ(alone.Run({.isa = isa(), .matrices = matrices()}), RowsOf(batch, together, s))
        << "sequence " << s;
  }
}

TEST_P(AttentionIdentitiesTest, TheBlocksSlotsChangeNoBit) {
  std::mt19937 random(3);
  AttentionBatch batch(MixedShape(), random);
  const AttentionRows before = batch.Run({.isa = isa(), .matrices = matrices()});
  batch.MoveBlocks(random);
  EXPECT_EQ(batch.Run({.isa = isa(), .matrices = matrices()}), before);
}

TEST_P(AttentionIdentitiesTest, TheBlocksSizeChangesNoBit) {
  if (isa() == cpu::Isa::kPortable) GTEST_SKIP() << "goes block by block";
  std::mt19937 random(4);
  AttentionBatch small(MixedShape(), random);
  BatchShape shape = MixedShape();
  shape.tokens_per_block = 64;
  shape.token_flat = true;
  AttentionBatch large(shape, random);
  for (size_t s = 0; s < shape.lengths.size(); ++s) {
    CopySequence(small, s, large, s, shape.lengths[s].context);
  }
  large.queries() = small.queries();
  EXPECT_EQ(large.Run({.isa = isa(), .matrices = matrices()}),
            small.Run({.isa = isa(), .matrices = matrices()}));
}

TEST_P(AttentionIdentitiesTest, ChunksAreLikeOneShotAndDecodeIsLikePrefillsLastRow) {
  std::mt19937 random(5);
  for (const uint32_t window : {0u, 50u}) {
    BatchShape shape = MixedShape();
    shape.query_type = ElementType::kFloat32;
    shape.mask.window_tokens = window;
    shape.lengths = {{150, 150}};
    AttentionBatch whole(shape, random);
    const AttentionRows one_shot = whole.Run({.isa = isa(), .matrices = matrices()});
    int32_t begin = 0;
    for (const int32_t count : {1, 2, 16, 17, 64, 49, 1}) {
      BatchShape chunk_shape = shape;
      chunk_shape.lengths = {{count, begin + count}};
      AttentionBatch chunk(chunk_shape, random);
      CopySequence(whole, 0, chunk, 0, begin + count);
      CopyQueries(whole, begin, chunk, count);
      const AttentionRows rows = chunk.Run({.isa = isa(), .matrices = matrices()});
      AttentionRows expected;
      const auto heads = static_cast<ptrdiff_t>(whole.num_heads());
      const ptrdiff_t row = heads * whole.value_dim();
      expected.output.assign(one_shot.output.begin() + begin * row,
                             one_shot.output.begin() + (begin + count) * row);
      expected.lse.assign(one_shot.lse.begin() + begin * heads,
                          one_shot.lse.begin() + (begin + count) * heads);
      ExpectClose(chunk, rows, expected, ToleranceOf(shape, isa(), matrices()));
      begin += count;
    }
    ASSERT_EQ(begin, 150);
  }
}

TEST_P(AttentionIdentitiesTest, SequencesMayShareBlocksAndATableMayRepeatThem) {
  std::mt19937 random(6);
  BatchShape shape = MixedShape();
  shape.lengths = {{1, 200}, {20, 200}, {1, 64}};
  AttentionBatch batch(shape, random);
  const size_t stride = batch.params().block_table_stride;
  for (size_t b = 0; b < 12; ++b) batch.tables()[stride + b] = batch.tables()[b];
  for (size_t b = 0; b < 4; ++b) batch.tables()[2 * stride + b] = batch.tables()[3];
  ExpectClose(batch, batch.Run({.isa = isa(), .matrices = matrices()}), batch.Expected(),
              ToleranceOf(shape, isa(), matrices()));
}

TEST_P(AttentionIdentitiesTest, TheOutputMayBeTheQuery) {
  std::mt19937 random(7);
  const AttentionBatch batch(MixedShape(), random);
  const AttentionRows apart = batch.Run({.isa = isa(), .matrices = matrices()});
  std::vector<float> in_place = const_cast<AttentionBatch&>(batch).queries();
  PagedAttentionParams params = batch.params();
  params.query = in_place.data();
  params.output = in_place.data();
  params.query_token_stride = uint64_t{batch.num_heads()} * batch.value_dim();
  params.output_token_stride = params.query_token_stride;
  ASSERT_TRUE(cpu::PagedAttention(params, nullptr,
                                  {.isa = isa(), .decode_isa = isa(), .matrices = matrices()})
                  .ok());
  EXPECT_EQ(in_place, apart.output);
}

TEST_P(AttentionIdentitiesTest, APlanForOtherLengthsIsRefused) {
  std::mt19937 random(8);
  const AttentionBatch batch(MixedShape(), random);
  std::vector<float> output(uint64_t{batch.num_queries()} * batch.num_heads() * 64);
  PagedAttentionParams params = batch.params();
  params.query = output.data();
  params.output = output.data();
  params.query_token_stride = params.output_token_stride = batch.num_heads() * 64;
  const auto refused = [&](const AttentionPlan& plan) {
    const absl::Status status = cpu::PagedAttention(
        params, &plan, {.isa = isa(), .decode_isa = isa(), .matrices = matrices()});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("plan was made for"));
  };
  const PlanShape good = batch.plan_shape();
  const AttentionPlan plan = cpu::PlanForCpu(good);
  ASSERT_TRUE(cpu::PagedAttention(params, &plan,
                                  {.isa = isa(), .decode_isa = isa(), .matrices = matrices()})
                  .ok());

  PlanShape other = good;
  other.num_kv_heads = 3;
  refused(cpu::PlanForCpu(other));
  std::vector<int32_t> contexts(good.context_lengths.begin(), good.context_lengths.end());
  for (int32_t& context : contexts) {
    ++context;
    (other = good).context_lengths = contexts;
    refused(cpu::PlanForCpu(other));
    context -= 2;
    refused(cpu::PlanForCpu(other));
    ++context;
  }
  other = good;
  other.mask.window_tokens = 100;
  refused(cpu::PlanForCpu(other));
  std::vector<int32_t> starts(good.query_starts.begin(), good.query_starts.end());
  --starts.back();
  (other = good).query_starts = starts;
  refused(cpu::PlanForCpu(other));

  AttentionPlan broken = plan;
  broken.items.pop_back();
  refused(broken);
  (broken = plan).items[0].end_key -= 16;
  refused(broken);
  (broken = plan).items[0].partial += 1;
  refused(broken);
  (broken = plan).merges[0].num_parts += 1;
  refused(broken);
  (broken = plan).num_partials -= 1;
  refused(broken);
  (broken = plan).worker_starts.back() += 1;
  refused(broken);
}

INSTANTIATE_TEST_SUITE_P(Ways, AttentionIdentitiesTest, testing::ValuesIn(Ways()),
                         [](const auto& way) { return WayName(way.param); });

}  // namespace
}  // namespace pagoda::kernels
