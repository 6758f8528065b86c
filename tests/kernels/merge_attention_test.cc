#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention_merge.h"
#include "kernels/numeric.h"
#include "tests/kernels/attention_batch.h"

namespace pagoda::kernels {
namespace {

using ::testing::HasSubstr;

constexpr float kNoKey = -std::numeric_limits<float>::infinity();

struct Parts {
  Parts(uint32_t count, uint32_t tokens, uint32_t heads, uint32_t dim, std::mt19937& random)
      : outputs(count), lses(count) {
    std::normal_distribution<float> normal;
    for (uint32_t p = 0; p < count; ++p) {
      for (uint32_t row = 0; row < tokens * heads; ++row) {
        const bool empty = random() % 4 == 0;
        lses[p].push_back(empty ? kNoKey : 10 * normal(random));
        for (uint32_t i = 0; i < dim; ++i) {
          outputs[p].push_back(empty ? std::nanf("") : normal(random));
        }
      }
    }
    for (uint32_t p = 0; p < count; ++p) {
      parts.push_back({.output = outputs[p].data(), .lse = lses[p].data()});
    }
  }
  std::vector<std::vector<float>> outputs;
  std::vector<std::vector<float>> lses;
  std::vector<AttentionPart> parts;
};

TEST(MergeAttentionTest, AgreesWithTheReferenceWhateverPartsHaveNoKeys) {
  cpu::ThreadPool threads(3);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const uint32_t tokens = 1 + random() % 5, heads = 1 + random() % 4, dim = 1 + random() % 40;
    const Parts parts(1 + random() % 8, tokens, heads, dim, random);
    const uint64_t stride = uint64_t{heads} * dim + random() % 3;
    std::vector<float> output(tokens * stride + 1), expected(output);
    std::vector<float> lse(tokens * heads + 1), expected_lse(lse);
    AttentionMergeParams params = {.parts = parts.parts,
                                   .output = output.data(),
                                   .output_token_stride = stride,
                                   .lse = lse.data(),
                                   .num_tokens = tokens,
                                   .num_heads = heads,
                                   .value_dim = dim};
    ASSERT_TRUE(
        cpu::MergeAttention(params, {.threads = random() % 2 == 0 ? &threads : nullptr}).ok());
    params.output = expected.data();
    params.lse = expected_lse.data();
    ASSERT_TRUE(reference::MergeAttention(params).ok());
    for (size_t i = 0; i < output.size(); ++i) {
      ASSERT_TRUE(std::isfinite(output[i]));
      ASSERT_NEAR(output[i], expected[i], 1e-5);
    }
    for (size_t i = 0; i < lse.size(); ++i) {
      if (std::isinf(expected_lse[i])) {
        ASSERT_EQ(lse[i], kNoKey);
      } else {
        ASSERT_NEAR(lse[i], expected_lse[i], 1e-5 * std::max(1.0f, std::abs(expected_lse[i])));
      }
    }
  }
}

TEST(MergeAttentionTest, TheOutputMayBeAPart) {
  std::mt19937 random(1);
  Parts parts(3, 4, 2, 8, random);
  std::vector<float> output(64), lse(8);
  AttentionMergeParams params = {.parts = parts.parts,
                                 .output = output.data(),
                                 .output_token_stride = 16,
                                 .lse = lse.data(),
                                 .num_tokens = 4,
                                 .num_heads = 2,
                                 .value_dim = 8};
  ASSERT_TRUE(cpu::MergeAttention(params).ok());
  params.output = parts.outputs[1].data();
  params.lse = parts.lses[1].data();
  ASSERT_TRUE(cpu::MergeAttention(params).ok());
  EXPECT_EQ(parts.outputs[1], output);
  EXPECT_EQ(parts.lses[1], lse);
}

// A shared prefix, computed for all sequences at once, merged with each sequence's remaining keys,
// gives the result of each sequence alone.
TEST(MergeAttentionTest, ACascadeIsLikeTheFlatCall) {
  std::mt19937 random(2);
  constexpr int32_t kPrefix = 160, kOwn = 37, kSequences = 3;
  BatchShape shape = {.pool_type = ElementType::kFloat16, .group = 2, .head_dim = 64};
  for (int s = 0; s < kSequences; ++s) shape.lengths.push_back({2, kPrefix + kOwn});
  AttentionBatch flat(shape, random);
  const size_t stride = flat.params().block_table_stride;
  std::vector<int32_t>& tables = flat.tables();
  for (size_t s = 1; s < kSequences; ++s) {
    std::copy_n(tables.begin(), kPrefix / 16, tables.begin() + static_cast<ptrdiff_t>(s * stride));
  }
  const AttentionRows expected = flat.Expected();

  const uint64_t rows = uint64_t{flat.num_queries()} * flat.num_heads();
  std::vector<float> outputs[2], lses[2];
  PagedAttentionParams params = flat.params();
  params.query = flat.queries().data();
  params.query_token_stride = params.output_token_stride = uint64_t{flat.num_heads()} * 64;
  const auto run = [&](int part, const std::vector<int32_t>& starts,
                       const std::vector<int32_t>& contexts, const std::vector<int32_t>& table) {
    outputs[part].resize(rows * 64);
    lses[part].resize(rows);
    params.output = outputs[part].data();
    params.lse = lses[part].data();
    params.query_starts = starts;
    params.context_lengths = contexts;
    params.block_tables = table;
    params.block_table_stride = table.size() / contexts.size();
    ASSERT_TRUE(cpu::PagedAttention(params).ok());
  };
  params.mask.causal = false;
  run(0, {0, 2 * kSequences}, {kPrefix}, {tables.begin(), tables.begin() + kPrefix / 16});
  params.mask.causal = true;
  std::vector<int32_t> own;
  for (size_t s = 0; s < kSequences; ++s) {
    for (size_t b = kPrefix / 16; b < (kPrefix + kOwn + 15) / 16; ++b) {
      own.push_back(tables[s * stride + b]);
    }
  }
  run(1, {0, 2, 4, 6}, {kOwn, kOwn, kOwn}, own);

  AttentionRows merged;
  merged.output.resize(rows * 64);
  merged.lse.resize(rows);
  const std::vector<AttentionPart> parts = {{outputs[0].data(), lses[0].data()},
                                            {outputs[1].data(), lses[1].data()}};
  ASSERT_TRUE(cpu::MergeAttention({.parts = parts,
                                   .output = merged.output.data(),
                                   .output_token_stride = uint64_t{flat.num_heads()} * 64,
                                   .lse = merged.lse.data(),
                                   .num_tokens = flat.num_queries(),
                                   .num_heads = flat.num_heads(),
                                   .value_dim = 64})
                  .ok());
  ExpectClose(flat, merged, expected, {.output = 1e-5, .lse = 1e-5});
}

TEST(MergeAttentionTest, RefusesABadArgumentByName) {
  std::mt19937 random(3);
  const Parts parts(2, 2, 2, 4, random);
  std::vector<float> output(16);
  const AttentionMergeParams good = {.parts = parts.parts,
                                     .output = output.data(),
                                     .output_token_stride = 8,
                                     .num_tokens = 2,
                                     .num_heads = 2,
                                     .value_dim = 4};
  ASSERT_TRUE(cpu::MergeAttention(good).ok());
  const auto refused = [](const AttentionMergeParams& params, const std::string& name) {
    for (const absl::Status& status :
         {cpu::MergeAttention(params), reference::MergeAttention(params)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    }
  };
  AttentionMergeParams bad = good;
  bad.parts = {};
  refused(bad, "parts has 0 entries");
  const std::vector<AttentionPart> nine(9, parts.parts[0]);
  (bad = good).parts = nine;
  refused(bad, "parts has 9 entries");
  const std::vector<AttentionPart> no_lse = {{.output = output.data(), .lse = nullptr}};
  (bad = good).parts = no_lse;
  refused(bad, "parts.lse is null");
  (bad = good).output = nullptr;
  refused(bad, "output is null");
  (bad = good).type = ElementType::kFloat8E4M3;
  refused(bad, "8 bits");
  (bad = good).output_token_stride = 7;
  refused(bad, "output_token_stride is 7");
  (bad = good).num_heads = 0;
  refused(bad, "num_heads is 0");
  (bad = good).value_dim = 0;
  refused(bad, "value_dim is 0");
}

}  // namespace
}  // namespace pagoda::kernels
