// Identities between calls of the GPU attention: bit by bit, or within rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/numeric.h"
#include "tests/kernels/cuda/attention_case.h"

namespace pagoda::kernels::cuda {
namespace {

using ::testing::HasSubstr;

// For the kernels on tensor cores; a test names the plain one explicitly.
class CudaAttentionIdentitiesTest : public testing::TestWithParam<AttentionKernels> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoDevice(); !why.empty()) GTEST_SKIP() << why;
    if (GetParam() == AttentionKernels::kHopper && !HasHopper()) GTEST_SKIP() << "no Hopper";
  }
};

INSTANTIATE_TEST_SUITE_P(TensorCores, CudaAttentionIdentitiesTest,
                         testing::Values(AttentionKernels::kSm80, AttentionKernels::kHopper),
                         [](const auto& test) {
                           return test.param == AttentionKernels::kSm80 ? "Sm80" : "Hopper";
                         });

AttentionResult Result(AttentionData& data) {
  absl::StatusOr<AttentionResult> result = data.Run();
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : AttentionResult{};
}

TEST_P(CudaAttentionIdentitiesTest, TheSlotsOfTheBlocksDoNotMatter) {
  for (const bool decode : {true, false}) {
    AttentionData data({.lengths = decode ? std::vector<Lengths>{{1, 150}, {1, 20}}
                                          : std::vector<Lengths>{{30, 150}},
                        .split_tokens = 48,
                        .kernels = GetParam()});
    const AttentionResult before = Result(data);
    data.PermuteSlots(5);
    EXPECT_EQ(Result(data).output, before.output);
  }
}

TEST_P(CudaAttentionIdentitiesTest, TheOrderInWhichWarpsRunDoesNotMatter) {
  for (const bool decode : {true, false}) {
    AttentionData data({.lengths = decode ? std::vector<Lengths>{{1, 150}, {1, 20}}
                                          : std::vector<Lengths>{{30, 150}},
                        .split_tokens = 48,
                        .kernels = GetParam()});
    const AttentionResult first = Result(data);
    for (uint32_t seed = 1; seed < 4; ++seed) {
      ShuffleSchedule(seed);
      const AttentionResult again = Result(data);
      EXPECT_EQ(again.output, first.output);
      EXPECT_EQ(again.lse, first.lse);
    }
  }
}

// Other sequences do not affect where a context is cut.
TEST_P(CudaAttentionIdentitiesTest, TheRestOfTheBatchDoesNotMatter) {
  for (const Lengths& first : {Lengths{1, 150}, Lengths{40, 90}}) {
    AttentionData whole(
        {.lengths = {first, {25, 60}, {1, 80}}, .split_tokens = 64, .kernels = GetParam()});
    const AttentionResult together = Result(whole);
    // The first sequence has the same contents in both batches, in other slots.
    AttentionData part({.lengths = {first}, .split_tokens = 64, .kernels = GetParam()});
    const AttentionResult alone = Result(part);
    ASSERT_LT(alone.output.size(), together.output.size());
    EXPECT_TRUE(std::equal(alone.output.begin(), alone.output.end(), together.output.begin()));
    EXPECT_TRUE(std::equal(alone.lse.begin(), alone.lse.end(), together.lse.begin()));
  }
}

TEST_P(CudaAttentionIdentitiesTest, SplitsAgreeWithOnePiece) {
  AttentionCase attention_case = {
      .lengths = {{1, 300}, {1, 64}}, .split_tokens = 1000, .kernels = GetParam()};
  AttentionData data(attention_case);
  const AttentionResult whole = Result(data);
  for (const uint32_t split : {16u, 100u}) {
    attention_case.split_tokens = split;
    AttentionData cut(attention_case);
    EXPECT_EQ(Compare(attention_case, Result(cut), whole), "");
  }
}

// More parts than a warp has lanes, and rows that are not whole vectors.
TEST_P(CudaAttentionIdentitiesTest, ManyPartsAreMerged) {
  for (const uint32_t head_dim : {64u, 200u}) {
    AttentionCase attention_case = {
        .head_dim = head_dim, .lengths = {{1, 1100}, {1, 530}, {1, 33}}, .kernels = GetParam()};
    attention_case.split_tokens = 16;
    for (const bool sinks : {false, true}) {
      attention_case.sinks = sinks;
      AttentionData data(attention_case);
      EXPECT_EQ(Compare(attention_case, Result(data), data.Reference()), "")
          << attention_case.Describe();
    }
  }
  for (const uint32_t head_dim : {3u, 33u, 130u}) {
    AttentionCase attention_case = {.query_type = ElementType::kFloat32,
                                    .pool_type = ElementType::kFloat32,
                                    .head_dim = head_dim,
                                    .lengths = {{1, 600}, {3, 100}},
                                    .split_tokens = 16,
                                    .kernels = AttentionKernels::kGeneric};
    AttentionData data(attention_case);
    EXPECT_EQ(Compare(attention_case, Result(data), data.Reference()), "")
        << attention_case.Describe();
  }
}

TEST_P(CudaAttentionIdentitiesTest, TheOutputMayBeTheQuery) {
  for (const bool decode : {true, false}) {
    AttentionData data({.lengths = decode ? std::vector<Lengths>{{1, 150}, {1, 20}}
                                          : std::vector<Lengths>{{30, 150}},
                        .kernels = GetParam()});
    const AttentionResult apart = Result(data);
    const AttentionPlan plan = data.Plan();
    const PlanCapacity capacity = CapacityFor(plan, 8);
    DeviceArray<std::byte> device_plan(PlanBytes(capacity));
    DeviceArray<std::byte> workspace(WorkspaceBytes(capacity, 8, 64));
    ASSERT_TRUE(CopyPlan(plan, 8, capacity, device_plan.data(), nullptr).ok());
    PagedAttentionParams params = data.Params();
    params.output = const_cast<void*>(params.query);
    ASSERT_TRUE(PagedAttention(params, {.plan = device_plan.data(),
                                        .capacity = capacity,
                                        .workspace = workspace.data(),
                                        .workspace_bytes = workspace.size(),
                                        .kernels = GetParam()})
                    .ok());
    FinishDevice();
    std::vector<BFloat16> output(apart.output.size());
    CopyFromDevice(output.data(), params.output, output.size() * sizeof(BFloat16));
    for (size_t i = 0; i < output.size(); ++i) ASSERT_EQ(ToFloat(output[i]), apart.output[i]);
  }
}

constexpr uint32_t kCascadeHeads = 8;
constexpr uint32_t kCascadeDim = 64;

// The results of three queries over a part of their keys.
struct CascadePart {
  DeviceArray<BFloat16> output{3 * kCascadeHeads * kCascadeDim};
  DeviceArray<float> lse{3 * kCascadeHeads};
};

// Attention over `blocks` blocks of each sequence, from `first_block` on. Only the last ones are
// causal. `tables` are those of `whole`.
void RunCascadePart(const PagedAttentionParams& whole, const std::vector<int32_t>& tables,
                    int first_block, int blocks, AttentionKernels kernels, CascadePart& result) {
  const std::vector<int32_t> starts = {0, 1, 2, 3};
  const std::vector<int32_t> contexts(3, 16 * blocks);
  std::vector<int32_t> part_tables(tables.size(), -1);
  for (int s = 0; s < 3; ++s) {
    for (int b = 0; b < blocks; ++b) {
      part_tables[s * whole.block_table_stride + b] =
          tables[s * whole.block_table_stride + b + first_block];
    }
  }
  DeviceArray<int32_t> device_contexts(contexts);
  DeviceArray<int32_t> device_tables(part_tables);
  PagedAttentionParams part = whole;
  part.mask.causal = first_block > 0;
  part.output = result.output.data();
  part.output_token_stride = kCascadeHeads * kCascadeDim;
  part.lse = result.lse.data();
  part.context_lengths = device_contexts.span();
  part.block_tables = device_tables.span();
  const AttentionPlan plan = PlanForCuda(
      {.query_starts = starts, .context_lengths = contexts, .mask = part.mask, .num_kv_heads = 2},
      kCascadeHeads);
  const PlanCapacity capacity = CapacityFor(plan, kCascadeHeads);
  DeviceArray<std::byte> device_plan(PlanBytes(capacity));
  DeviceArray<std::byte> workspace(WorkspaceBytes(capacity, kCascadeHeads, kCascadeDim));
  ASSERT_TRUE(CopyPlan(plan, kCascadeHeads, capacity, device_plan.data(), nullptr).ok());
  ASSERT_TRUE(PagedAttention(part, {.plan = device_plan.data(),
                                    .capacity = capacity,
                                    .workspace = workspace.data(),
                                    .workspace_bytes = workspace.size(),
                                    .kernels = kernels})
                  .ok());
  FinishDevice();
}

// Two calls over parts of the keys, then their merge: a cascade.
TEST_P(CudaAttentionIdentitiesTest, MergedPartsAgreeWithTheWhole) {
  AttentionCase attention_case = {.lengths = {{1, 96}, {1, 96}, {1, 96}}, .kernels = GetParam()};
  AttentionData data(attention_case);
  const AttentionResult whole = Result(data);
  const PagedAttentionParams params = data.Params();
  // The first 64 tokens of each sequence, not causal; then the others, with tables that begin
  // there.
  std::vector<int32_t> tables(params.block_tables.size());
  CopyFromDevice(tables.data(), params.block_tables.data(), tables.size() * sizeof(int32_t));
  CascadePart parts[2];
  ASSERT_NO_FATAL_FAILURE(RunCascadePart(params, tables, 0, 4, GetParam(), parts[0]));
  ASSERT_NO_FATAL_FAILURE(RunCascadePart(params, tables, 4, 2, GetParam(), parts[1]));
  // A part without keys, whose output is NaN.
  CascadePart none;
  none.output.Set(std::vector<BFloat16>(3 * kCascadeHeads * kCascadeDim, BFloat16{0x7fff}));
  none.lse.Set(std::vector<float>(3 * kCascadeHeads, -INFINITY));
  const AttentionPart merged[] = {{parts[0].output.data(), parts[0].lse.data()},
                                  {none.output.data(), none.lse.data()},
                                  {parts[1].output.data(), parts[1].lse.data()}};
  // The output replaces the first part.
  ASSERT_TRUE(MergeAttention({.parts = merged,
                              .type = ElementType::kBFloat16,
                              .output = parts[0].output.data(),
                              .output_token_stride = kCascadeHeads * kCascadeDim,
                              .lse = parts[0].lse.data(),
                              .num_tokens = 3,
                              .num_heads = kCascadeHeads,
                              .value_dim = kCascadeDim},
                             nullptr)
                  .ok());
  FinishDevice();
  AttentionResult result = {.output = {}, .lse = parts[0].lse.Get()};
  for (const BFloat16 element : parts[0].output.Get()) result.output.push_back(ToFloat(element));
  EXPECT_EQ(Compare(attention_case, result, whole), "");
}

// If the reference has NaN, the kernels must not hide it behind an ordinary number. Returns whether
// there was any NaN.
bool ExpectNaNWhereTheReferenceHasIt(AttentionData& data) {
  const AttentionResult actual = Result(data);
  const AttentionResult expected = data.Reference();
  EXPECT_EQ(actual.output.size(), expected.output.size());
  bool any = false;
  const uint64_t dim = expected.output.size() / expected.lse.size();
  for (size_t row = 0; row < expected.lse.size(); ++row) {
    if (!std::isnan(expected.lse[row])) continue;
    any = true;
    EXPECT_TRUE(std::isnan(actual.lse[row])) << "log-sum-exp of row " << row;
    for (uint64_t i = row * dim; i < (row + 1) * dim; ++i) {
      if (!std::isnan(actual.output[i])) {
        ADD_FAILURE() << "row " << row << " has " << actual.output[i];
        break;
      }
    }
  }
  return any;
}

TEST_P(CudaAttentionIdentitiesTest, ANaNThatAQuerySeesReachesItsResult) {
  for (const AttentionKernels kernels : {GetParam(), AttentionKernels::kGeneric}) {
    // In one tile, in tiles of several warps, and in several pieces; decode and prefill.
    for (const AttentionCase& attention_case :
         std::vector<AttentionCase>{{.lengths = {{1, 9}}},
                                    {.lengths = {{1, 17}}},
                                    {.lengths = {{1, 17}}, .sinks = true},
                                    {.lengths = {{1, 200}}, .split_tokens = 64},
                                    {.lengths = {{40, 81}}},
                                    {.lengths = {{40, 81}}, .split_tokens = 16}}) {
      SCOPED_TRACE(attention_case.Describe());
      AttentionCase with_kernels = attention_case;
      with_kernels.kernels = kernels;
      AttentionData query(with_kernels);
      query.SetQueryToNaN(0, 1);
      EXPECT_TRUE(ExpectNaNWhereTheReferenceHasIt(query));
      // The last key, which can be the only one of a warp's last tile or of a piece.
      AttentionData key(with_kernels);
      key.SetKeyToNaN(0, attention_case.lengths[0].context - 1);
      EXPECT_TRUE(ExpectNaNWhereTheReferenceHasIt(key));
    }
  }
}

// The launch is for a larger capacity than the plan needs, like in a captured graph.
TEST_P(CudaAttentionIdentitiesTest, ALaunchWithSpareCapacityDoesWhatThePlanSays) {
  for (const bool decode : {true, false}) {
    AttentionCase attention_case = {.lengths = decode ? std::vector<Lengths>{{1, 150}, {1, 20}}
                                                      : std::vector<Lengths>{{30, 150}, {1, 9}},
                                    .split_tokens = 48,
                                    .kernels = GetParam()};
    AttentionData data(attention_case);
    const AttentionResult exact = Result(data);
    const PlanCapacity room = {
        .items = 40, .merged_rows = 70, .partials = 300, .short_rows = 16, .long_items = true};
    DeviceArray<std::byte> device_plan(PlanBytes(room));
    DeviceArray<std::byte> workspace(WorkspaceBytes(room, 8, 64));
    ASSERT_TRUE(CopyPlan(data.Plan(), 8, room, device_plan.data(), nullptr).ok());
    data.PoisonOutput();
    ASSERT_TRUE(PagedAttention(data.Params(), {.plan = device_plan.data(),
                                               .capacity = room,
                                               .workspace = workspace.data(),
                                               .workspace_bytes = workspace.size(),
                                               .kernels = GetParam()})
                    .ok());
    FinishDevice();
    const absl::StatusOr<AttentionResult> result = data.TakeResult();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Compare(attention_case, *result, data.Reference()), "");
    EXPECT_EQ(result->output.size(), exact.output.size());
  }
}

TEST_P(CudaAttentionIdentitiesTest, TheCpuComputesTheSame) {
  for (const ElementType pool : {ElementType::kBFloat16, ElementType::kFloat16,
                                 ElementType::kFloat8E4M3, ElementType::kFloat8E5M2}) {
    const ElementType query =
        pool == ElementType::kFloat16 ? ElementType::kFloat16 : ElementType::kBFloat16;
    const std::vector<Lengths> lengths =
        IsEmulated() ? std::vector<Lengths>{{1, 150}, {30, 90}, {20, 20}}
                     : std::vector<Lengths>{{1, 2000}, {300, 1000}, {200, 200}};
    const AttentionCase attention_case = {.query_type = query,
                                          .pool_type = pool,
                                          .num_kv_heads = IsEmulated() ? 2u : 8u,
                                          .head_dim = 128,
                                          .lengths = lengths,
                                          .kernels = GetParam()};
    AttentionData data(attention_case);
    EXPECT_EQ(Compare(attention_case, Result(data), data.OnCpu()), "") << attention_case.Describe();
  }
}

TEST_P(CudaAttentionIdentitiesTest, RefusesABadArgumentByName) {
  AttentionData data({.lengths = {{1, 150}}, .split_tokens = 48, .kernels = GetParam()});
  const AttentionPlan plan = data.Plan();
  const PlanCapacity capacity = CapacityFor(plan, 8);
  DeviceArray<std::byte> device_plan(PlanBytes(capacity));
  DeviceArray<std::byte> workspace(WorkspaceBytes(capacity, 8, 64));
  const AttentionExecution good = {.plan = device_plan.data(),
                                   .capacity = capacity,
                                   .workspace = workspace.data(),
                                   .workspace_bytes = workspace.size()};
  const auto refused = [](const absl::Status& status, const char* name) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  };
  AttentionExecution bad = good;
  bad.plan = nullptr;
  refused(PagedAttention(data.Params(), bad), "plan is null");
  (bad = good).workspace_bytes -= 16;
  refused(PagedAttention(data.Params(), bad), "workspace has");
  PagedAttentionParams params = data.Params();
  params.num_heads = 3;
  refused(PagedAttention(params, good), "num_heads is 3");
  (params = data.Params()).kv.scales = {.per_head = true, .slot_stride = 1};
  refused(PagedAttention(params, good), "kv.scales.slot_stride is 1; a slot has 2 scales");
  (params = data.Params()).kv.head_dim = 5000;
  EXPECT_FALSE(PagedAttention(params, good).ok());

  const AttentionPart part[] = {{params.query, params.lse}};
  AttentionMergeParams merge = {.parts = part,
                                .type = ElementType::kBFloat16,
                                .output = params.output,
                                .output_token_stride = 8 * 64,
                                .lse = params.lse,
                                .num_tokens = 1,
                                .num_heads = 8,
                                .value_dim = 64};
  EXPECT_TRUE(MergeAttention(merge, nullptr).ok());
  FinishDevice();
  merge.output = static_cast<std::byte*>(params.output) + 1;
  refused(MergeAttention(merge, nullptr), "output");
  merge.output = const_cast<void*>(params.query);
  merge.output_token_stride = 9 * 64;
  refused(MergeAttention(merge, nullptr), "output is a part's");
  PlanCapacity small = capacity;
  small.items -= 1;
  EXPECT_EQ(CopyPlan(plan, 8, small, device_plan.data(), nullptr).code(),
            absl::StatusCode::kResourceExhausted);
  small = capacity;
  small.short_rows = 0;
  EXPECT_EQ(CopyPlan(plan, 8, small, device_plan.data(), nullptr).code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pagoda::kernels::cuda
