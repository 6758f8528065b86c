// Tests that need a GPU: graphs, pools of more than 4 GiB, grids of many blocks; and the CPU
// kernels next to the GPU kernels.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/cache.h"
#include "kernels/cuda/copy.h"
#include "kernels/numeric.h"
#include "tests/gpu/cuda_check.h"
#include "tests/kernels/cuda/attention_case.h"

namespace pagoda::kernels::cuda {
namespace {

AttentionResult Result(AttentionData& data) {
  absl::StatusOr<AttentionResult> result = data.Run();
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : AttentionResult{};
}

TEST(GpuKernelsTest, LongContexts) {
  for (const AttentionKernels kernels :
       {AttentionKernels::kSm80, AttentionKernels::kHopper, AttentionKernels::kGeneric}) {
    if (kernels == AttentionKernels::kHopper && !HasHopper()) continue;
    const AttentionCase attention_case = {.num_kv_heads = 1,
                                          .group = 8,
                                          .head_dim = 128,
                                          .lengths = {{1, 200'000}, {3, 50'000}, {1, 7}},
                                          .kernels = kernels};
    AttentionData data(attention_case);
    EXPECT_EQ(Compare(attention_case, Result(data), data.Reference()), "");
  }
}

TEST(GpuKernelsTest, SeventyThousandSequences) {
  const AttentionCase attention_case = {
      .num_kv_heads = 1, .group = 2, .lengths = std::vector<Lengths>(70'000, Lengths{1, 3})};
  AttentionData data(attention_case);
  EXPECT_EQ(Compare(attention_case, Result(data), data.Reference()), "");
}

// A launch reports its own error, not one that other code has left in the thread; and it leaves
// that one to whoever asks for it.
TEST(GpuKernelsTest, AnEarlierErrorIsNotReportedAsItsOwn) {
  for (const AttentionKernels kernels :
       {AttentionKernels::kSm80, AttentionKernels::kHopper, AttentionKernels::kGeneric}) {
    if (kernels == AttentionKernels::kHopper && !HasHopper()) continue;
    // Decode, prefill, and a merge.
    AttentionData data({.lengths = {{1, 300}, {70, 300}}, .split_tokens = 64, .kernels = kernels});
    EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
    EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    const absl::StatusOr<AttentionResult> result = data.Run();
    EXPECT_TRUE(result.ok()) << result.status();
    cudaGetLastError();  // Clears it, if a call in between has not (CUDA 13 does).
  }
}

// Attention in a graph. Each run takes the contexts and the plan that were set last, at the same
// addresses.
class CapturedAttention {
 public:
  // `data` outlives it.
  CapturedAttention(AttentionData* data, const PlanCapacity& capacity);
  ~CapturedAttention() {
    PAGODA_CUDA_CHECK(cudaGraphExecDestroy(runnable_));
    PAGODA_CUDA_CHECK(cudaGraphDestroy(graph_));
    PAGODA_CUDA_CHECK(cudaStreamDestroy(stream_));
  }
  CapturedAttention(const CapturedAttention&) = delete;
  CapturedAttention& operator=(const CapturedAttention&) = delete;

  void Set(const std::vector<int32_t>& contexts, const AttentionPlan& plan);
  absl::StatusOr<AttentionResult> Replay();
  absl::StatusOr<AttentionResult> Launch();  // Without the graph.

 private:
  AttentionData& data_;
  const PagedAttentionParams params_ = data_.Params();
  const DeviceArray<std::byte> plan_;
  const DeviceArray<std::byte> workspace_;
  cudaStream_t stream_ = nullptr;
  AttentionExecution execution_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t runnable_ = nullptr;
};

CapturedAttention::CapturedAttention(AttentionData* data, const PlanCapacity& capacity)
    : data_(*data),
      plan_(PlanBytes(capacity)),
      workspace_(WorkspaceBytes(capacity, params_.num_heads, params_.kv.value_elements())) {
  PAGODA_CUDA_CHECK(cudaStreamCreate(&stream_));
  execution_ = {.stream = stream_,
                .plan = plan_.data(),
                .capacity = capacity,
                .workspace = workspace_.data(),
                .workspace_bytes = workspace_.size(),
                .kernels = data_.attention_case().kernels};
  PAGODA_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  EXPECT_TRUE(PagedAttention(params_, execution_).ok());
  PAGODA_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph_));
  PAGODA_CUDA_CHECK(cudaGraphInstantiate(&runnable_, graph_, 0));
}

void CapturedAttention::Set(const std::vector<int32_t>& contexts, const AttentionPlan& plan) {
  CopyToDevice(const_cast<int32_t*>(params_.context_lengths.data()), contexts.data(),
               contexts.size() * sizeof(int32_t));
  ASSERT_TRUE(CopyPlan(plan, params_.num_heads, execution_.capacity, plan_.data(), stream_).ok());
  PAGODA_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

absl::StatusOr<AttentionResult> CapturedAttention::Replay() {
  data_.PoisonOutput();
  PAGODA_CUDA_CHECK(cudaGraphLaunch(runnable_, stream_));
  PAGODA_CUDA_CHECK(cudaStreamSynchronize(stream_));
  return data_.TakeResult();
}

absl::StatusOr<AttentionResult> CapturedAttention::Launch() {
  data_.PoisonOutput();
  if (absl::Status status = PagedAttention(params_, execution_); !status.ok()) return status;
  FinishDevice();
  return data_.TakeResult();
}

// The whole contexts first, then shorter ones.
std::vector<std::vector<int32_t>> ContextsOfSteps(const std::vector<Lengths>& lengths) {
  std::vector<std::vector<int32_t>> steps;
  for (const int32_t shorter : {0, 1, 40, 63}) {
    std::vector<int32_t> contexts;
    for (const Lengths& l : lengths) contexts.push_back(std::max(l.queries, l.context - shorter));
    steps.push_back(contexts);
  }
  return steps;
}

AttentionPlan PlanFor(const AttentionData& data, const std::vector<int32_t>& contexts) {
  std::vector<int32_t> starts = {0};
  for (const Lengths& l : data.attention_case().lengths)
    starts.push_back(starts.back() + l.queries);
  const PagedAttentionParams params = data.Params();
  return PlanForCuda({.query_starts = starts,
                      .context_lengths = contexts,
                      .mask = params.mask,
                      .num_kv_heads = params.kv.num_kv_heads},
                     params.num_heads);
}

void ExpectSameFromAGraph(const AttentionCase& attention_case) {
  AttentionData data(attention_case);
  const std::vector<std::vector<int32_t>> steps = ContextsOfSteps(attention_case.lengths);
  PlanCapacity capacity;
  for (const std::vector<int32_t>& contexts : steps) {
    capacity = Widest(capacity, CapacityFor(PlanFor(data, contexts), data.Params().num_heads));
  }
  CapturedAttention captured(&data, capacity);
  for (const std::vector<int32_t>& contexts : steps) {
    ASSERT_NO_FATAL_FAILURE(captured.Set(contexts, PlanFor(data, contexts)));
    const absl::StatusOr<AttentionResult> replayed = captured.Replay();
    const absl::StatusOr<AttentionResult> launched = captured.Launch();
    ASSERT_TRUE(replayed.ok() && launched.ok());
    EXPECT_EQ(replayed->output, launched->output);
    EXPECT_EQ(replayed->lse, launched->lse);
    if (contexts == steps.front()) {
      EXPECT_EQ(Compare(attention_case, *replayed, data.Reference()), "");
    }
  }
}

// A graph is captured once, and runs again with shorter contexts and another plan at the same
// addresses.
TEST(GpuKernelsTest, AGraphRunsAgainWithOtherLengths) {
  const std::vector<Lengths> decode = {{1, 3000}, {1, 700}, {1, 64}};
  const std::vector<Lengths> prefill = {{200, 900}, {1, 500}, {9, 90}};
  for (const AttentionKernels kernels : {AttentionKernels::kSm80, AttentionKernels::kHopper}) {
    if (kernels == AttentionKernels::kHopper && !HasHopper()) continue;
    for (const std::vector<Lengths>& lengths : {decode, prefill}) {
      ExpectSameFromAGraph(
          {.num_kv_heads = 4, .head_dim = 128, .lengths = lengths, .kernels = kernels});
    }
  }
}

// Pinned memory and a separate stream: here many copies are one call of the driver.
TEST(GpuKernelsTest, BlocksGoAcrossAndBackOnAStream) {
  constexpr uint64_t kSlotBytes = 64 << 10;
  constexpr uint32_t kSlots = 64;
  void* pinned[2];
  for (void*& memory : pinned) PAGODA_CUDA_CHECK(cudaMallocHost(&memory, kSlots * kSlotBytes));
  auto* host = static_cast<std::byte*>(pinned[0]);
  auto* back = static_cast<std::byte*>(pinned[1]);
  for (uint64_t i = 0; i < kSlots * kSlotBytes; ++i)
    host[i] = static_cast<std::byte>(i * 7 + i / 251);
  DeviceArray<std::byte> device(kSlots * kSlotBytes);
  std::vector<SlotCopy> down;
  std::vector<SlotCopy> up;
  for (uint32_t i = 0; i < kSlots; ++i) {
    down.push_back({i, (i * 5 + 3) % kSlots});
    up.push_back({down.back().target, i});
  }
  cudaStream_t stream;
  PAGODA_CUDA_CHECK(cudaStreamCreate(&stream));
  BlockCopyParams params = {.source = host,
                            .target = device.data(),
                            .source_slots = kSlots,
                            .target_slots = kSlots,
                            .slot_bytes = kSlotBytes,
                            .copies = down};
  EXPECT_TRUE(CopyBlocksAcross(params, stream).ok());
  params.source = device.data();
  params.target = back;
  params.copies = up;
  EXPECT_TRUE(CopyBlocksAcross(params, stream).ok());
  PAGODA_CUDA_CHECK(cudaStreamSynchronize(stream));
  EXPECT_TRUE(std::equal(host, host + kSlots * kSlotBytes, back));
  PAGODA_CUDA_CHECK(cudaStreamDestroy(stream));
  for (void* memory : pinned) PAGODA_CUDA_CHECK(cudaFreeHost(memory));
}

// The blocks of a case, at the far end of a pool of 6 GiB.
class FarBlocks {
 public:
  explicit FarBlocks(const PagedAttentionParams& near);

  // The case's parameters, with this pool and these tables.
  const PagedAttentionParams& params() const { return params_; }
  const std::byte* end() const { return pool_.data() + pool_.size(); }

 private:
  static std::vector<int32_t> MovedTables(const PagedAttentionParams& near, uint32_t shift);

  PagedAttentionParams params_;
  const uint32_t slots_;
  const DeviceArray<std::byte> pool_;
  const DeviceArray<int32_t> tables_;
};

std::vector<int32_t> FarBlocks::MovedTables(const PagedAttentionParams& near, uint32_t shift) {
  std::vector<int32_t> tables(near.block_tables.size());
  CopyFromDevice(tables.data(), near.block_tables.data(), tables.size() * sizeof(int32_t));
  for (int32_t& entry : tables) {
    if (entry >= 0) entry += static_cast<int32_t>(shift);
  }
  return tables;
}

FarBlocks::FarBlocks(const PagedAttentionParams& near)
    : params_(near),
      slots_(static_cast<uint32_t>((uint64_t{6} << 30) / near.kv.slot_stride_bytes)),
      pool_(uint64_t{slots_} * near.kv.slot_stride_bytes),
      tables_(MovedTables(near, slots_ - near.kv.num_slots)) {
  const uint64_t slot_bytes = near.kv.slot_stride_bytes;
  PAGODA_CUDA_CHECK(cudaMemset(pool_.data(), 0xff, pool_.size()));
  PAGODA_CUDA_CHECK(cudaMemcpy(pool_.data() + (slots_ - near.kv.num_slots) * slot_bytes,
                               near.kv.keys, near.kv.num_slots * slot_bytes,
                               cudaMemcpyDeviceToDevice));
  params_.kv.values = pool_.data() + (near.kv.values - near.kv.keys);
  params_.kv.keys = pool_.data();
  params_.kv.num_slots = slots_;
  params_.block_tables = tables_.span();
}

// The case's attention with other parameters.
absl::StatusOr<AttentionResult> RunWithParams(AttentionData& data,
                                              const PagedAttentionParams& params) {
  const AttentionPlan plan = data.Plan();
  const PlanCapacity capacity = CapacityFor(plan, params.num_heads);
  DeviceArray<std::byte> device_plan(PlanBytes(capacity));
  DeviceArray<std::byte> workspace(
      WorkspaceBytes(capacity, params.num_heads, params.kv.value_elements()));
  absl::Status status = CopyPlan(plan, params.num_heads, capacity, device_plan.data(), nullptr);
  if (!status.ok()) return status;
  data.PoisonOutput();
  status = PagedAttention(params, {.plan = device_plan.data(),
                                   .capacity = capacity,
                                   .workspace = workspace.data(),
                                   .workspace_bytes = workspace.size(),
                                   .kernels = data.attention_case().kernels});
  if (!status.ok()) return status;
  FinishDevice();
  return data.TakeResult();
}

// Writes a token to the very last slot, and reads it back.
void ExpectWriteAtTheEnd(const FarBlocks& far) {
  const KvLayer& kv = far.params().kv;
  const std::vector<int64_t> last = {int64_t{kv.num_slots} * 16 - 1};
  DeviceArray<int64_t> token_slots(last);
  const uint64_t row_size = uint64_t{kv.num_kv_heads} * kv.head_dim;
  const std::vector<BFloat16> row(row_size, BFloat16{0x3f80});
  DeviceArray<BFloat16> rows(row);
  const bool has_values = kv.values != kv.keys;
  ASSERT_TRUE(WriteCache({.rows = {.keys = rows.data(),
                                   .values = has_values ? rows.data() : nullptr,
                                   .type = ElementType::kBFloat16,
                                   .key_token_stride = row_size,
                                   .value_token_stride = row_size},
                          .token_slots = token_slots.span(),
                          .kv = kv},
                         nullptr)
                  .ok());
  FinishDevice();
  BFloat16 element;
  CopyFromDevice(&element, far.end() - sizeof(element), sizeof(element));
  EXPECT_EQ(element.bits, 0x3f80);
}

// Moves the blocks of a small pool to the far end of a pool of 6 GiB. The last two have latents.
TEST(GpuKernelsTest, OffsetsBeyondFourGiB) {
  const AttentionCase plain = {.num_kv_heads = 8, .head_dim = 128, .lengths = {{1, 700}}};
  AttentionCase long_items = plain;
  long_items.lengths = {{100, 700}};
  const AttentionCase latents = {.num_kv_heads = 1,
                                 .group = 16,
                                 .head_dim = 576,
                                 .value_dim = 512,
                                 .lengths = {{1, 700}, {20, 300}}};
  AttentionCase generic = latents;
  generic.kernels = AttentionKernels::kGeneric;
  for (const AttentionCase& attention_case : {plain, long_items, latents, generic}) {
    AttentionData data(attention_case);
    const AttentionResult expected = Result(data);
    const FarBlocks far(data.Params());
    const absl::StatusOr<AttentionResult> result = RunWithParams(data, far.params());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->output, expected.output);
    ASSERT_NO_FATAL_FAILURE(ExpectWriteAtTheEnd(far));
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
