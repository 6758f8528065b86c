// Tests that need a GPU: graphs, pools of more than 4 GiB, grids of many blocks; and the CPU
// kernels beside the GPU kernels.
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

// A graph is captured once, and runs again with shorter contexts and another plan at the same
// addresses.
TEST(GpuKernelsTest, AGraphRunsAgainWithOtherLengths) {
  for (const auto& [kernels, decode] :
       std::vector<std::pair<AttentionKernels, bool>>{{AttentionKernels::kSm80, true},
                                                      {AttentionKernels::kSm80, false},
                                                      {AttentionKernels::kHopper, true},
                                                      {AttentionKernels::kHopper, false}}) {
    if (kernels == AttentionKernels::kHopper && !HasHopper()) continue;
    const std::vector<Lengths> lengths = decode
                                             ? std::vector<Lengths>{{1, 3000}, {1, 700}, {1, 64}}
                                             : std::vector<Lengths>{{200, 900}, {1, 500}, {9, 90}};
    AttentionData data(
        {.num_kv_heads = 4, .head_dim = 128, .lengths = lengths, .kernels = kernels});
    const uint32_t num_heads = 16;
    const PagedAttentionParams params = data.Params();
    const std::vector<int32_t> starts = [&] {
      std::vector<int32_t> result = {0};
      for (const Lengths& l : lengths) result.push_back(result.back() + l.queries);
      return result;
    }();
    const auto plan_for = [&](const std::vector<int32_t>& contexts) {
      return PlanForCuda({.query_starts = starts,
                          .context_lengths = contexts,
                          .mask = params.mask,
                          .num_kv_heads = 4},
                         num_heads);
    };
    std::vector<std::vector<int32_t>> steps;
    for (const int32_t shorter : {0, 1, 40, 63}) {
      std::vector<int32_t> contexts;
      for (const Lengths& l : lengths) {
        contexts.push_back(std::max(l.queries, l.context - shorter));
      }
      steps.push_back(contexts);
    }
    PlanCapacity capacity;
    for (const std::vector<int32_t>& contexts : steps) {
      capacity = Widest(capacity, CapacityFor(plan_for(contexts), num_heads));
    }
    DeviceArray<std::byte> plan(PlanBytes(capacity));
    DeviceArray<std::byte> workspace(WorkspaceBytes(capacity, num_heads, 128));
    cudaStream_t stream;
    PAGODA_CUDA_CHECK(cudaStreamCreate(&stream));
    const AttentionExecution execution = {.stream = stream,
                                          .plan = plan.data(),
                                          .capacity = capacity,
                                          .workspace = workspace.data(),
                                          .workspace_bytes = workspace.size(),
                                          .kernels = kernels};
    PAGODA_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ASSERT_TRUE(PagedAttention(params, execution).ok());
    cudaGraph_t graph;
    cudaGraphExec_t runnable;
    PAGODA_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    PAGODA_CUDA_CHECK(cudaGraphInstantiate(&runnable, graph, 0));
    for (const std::vector<int32_t>& contexts : steps) {
      CopyToDevice(const_cast<int32_t*>(params.context_lengths.data()), contexts.data(),
                   contexts.size() * sizeof(int32_t));
      ASSERT_TRUE(CopyPlan(plan_for(contexts), num_heads, capacity, plan.data(), stream).ok());
      PAGODA_CUDA_CHECK(cudaStreamSynchronize(stream));
      data.PoisonOutput();
      PAGODA_CUDA_CHECK(cudaGraphLaunch(runnable, stream));
      PAGODA_CUDA_CHECK(cudaStreamSynchronize(stream));
      const absl::StatusOr<AttentionResult> replayed = data.TakeResult();
      data.PoisonOutput();
      ASSERT_TRUE(PagedAttention(params, execution).ok());
      FinishDevice();
      const absl::StatusOr<AttentionResult> launched = data.TakeResult();
      ASSERT_TRUE(replayed.ok() && launched.ok());
      EXPECT_EQ(replayed->output, launched->output);
      EXPECT_EQ(replayed->lse, launched->lse);
      if (contexts == steps.front()) {
        EXPECT_EQ(Compare(data.attention_case(), *replayed, data.Reference()), "");
      }
    }
    PAGODA_CUDA_CHECK(cudaGraphExecDestroy(runnable));
    PAGODA_CUDA_CHECK(cudaGraphDestroy(graph));
    PAGODA_CUDA_CHECK(cudaStreamDestroy(stream));
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
    PagedAttentionParams params = data.Params();
    const uint64_t slot_bytes = params.kv.slot_stride_bytes;
    const auto large_slots = static_cast<uint32_t>((uint64_t{6} << 30) / slot_bytes);
    const uint32_t shift = large_slots - params.kv.num_slots;
    DeviceArray<std::byte> large(uint64_t{large_slots} * slot_bytes);
    PAGODA_CUDA_CHECK(cudaMemset(large.data(), 0xff, large.size()));
    PAGODA_CUDA_CHECK(cudaMemcpy(large.data() + shift * slot_bytes, params.kv.keys,
                                 params.kv.num_slots * slot_bytes, cudaMemcpyDeviceToDevice));
    std::vector<int32_t> tables(params.block_tables.size());
    CopyFromDevice(tables.data(), params.block_tables.data(), tables.size() * sizeof(int32_t));
    for (int32_t& entry : tables) {
      if (entry >= 0) entry += static_cast<int32_t>(shift);
    }
    DeviceArray<int32_t> large_tables(tables);
    params.kv.values = large.data() + (params.kv.values - params.kv.keys);
    params.kv.keys = large.data();
    params.kv.num_slots = large_slots;
    params.block_tables = large_tables.span();
    const AttentionPlan plan = data.Plan();
    const PlanCapacity capacity = CapacityFor(plan, params.num_heads);
    DeviceArray<std::byte> device_plan(PlanBytes(capacity));
    DeviceArray<std::byte> workspace(
        WorkspaceBytes(capacity, params.num_heads, params.kv.value_elements()));
    ASSERT_TRUE(CopyPlan(plan, params.num_heads, capacity, device_plan.data(), nullptr).ok());
    data.PoisonOutput();
    ASSERT_TRUE(PagedAttention(params, {.plan = device_plan.data(),
                                        .capacity = capacity,
                                        .workspace = workspace.data(),
                                        .workspace_bytes = workspace.size(),
                                        .kernels = attention_case.kernels})
                    .ok());
    FinishDevice();
    const absl::StatusOr<AttentionResult> result = data.TakeResult();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->output, expected.output);

    // Writes a token to the very last slot, and reads it back.
    const std::vector<int64_t> last = {int64_t{large_slots} * 16 - 1};
    DeviceArray<int64_t> token_slots(last);
    const uint64_t row_size = uint64_t{params.kv.num_kv_heads} * params.kv.head_dim;
    const std::vector<BFloat16> row(row_size, BFloat16{0x3f80});
    DeviceArray<BFloat16> rows(row);
    const bool has_values = params.kv.values != params.kv.keys;
    ASSERT_TRUE(WriteCache({.rows = {.keys = rows.data(),
                                     .values = has_values ? rows.data() : nullptr,
                                     .type = ElementType::kBFloat16,
                                     .key_token_stride = row_size,
                                     .value_token_stride = row_size},
                            .token_slots = token_slots.span(),
                            .kv = params.kv},
                           nullptr)
                    .ok());
    FinishDevice();
    BFloat16 element;
    CopyFromDevice(&element, large.data() + large.size() - sizeof(element), sizeof(element));
    EXPECT_EQ(element.bits, 0x3f80);
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
