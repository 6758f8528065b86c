// Puts partial results together: those of one call whose keys were cut, and those of several calls.
// A warp for each query head of a query token; parts in their order, so that the bits do not change
// from run to run.
#include "kernels/cuda/attention_merge_args.h"
#include "kernels/cuda/attention_unit.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/launch.h"

namespace pagoda::kernels::cuda {
namespace {

struct PartialMergeKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = AttentionArgs;

  static PAGODA_DEVICE void Run(const AttentionArgs& args) {
    const uint64_t end = uint64_t{args.plan->num_merged_rows} * args.num_heads;
    const uint64_t step = uint64_t{GridBlocks()} * kWarps;
    for (uint64_t i = uint64_t{BlockIndex()} * kWarps + WarpIndex(); i < end; i += step) {
      Merge(args, args.merged_rows[i / args.num_heads], static_cast<uint32_t>(i % args.num_heads));
    }
  }

  static PAGODA_DEVICE void Merge(const AttentionArgs& args, const MergedRow& row, uint32_t head) {
    float largest = NegativeInfinity();
    for (uint32_t k = 0; k < row.num_parts; ++k) {
      const float log_sum = args.partial_log_sums[Index(args, row, k, head)];
      largest = log_sum > largest ? log_sum : largest;
    }
    float sum = 0;  // Of weights, relative to the largest part's.
    for (uint32_t k = 0; k < row.num_parts; ++k) {
      const float log_sum = args.partial_log_sums[Index(args, row, k, head)];
      if (log_sum != NegativeInfinity()) sum += Exp2(log_sum - largest);
    }
    const RowEnd end = EndRow(args, largest, sum, head, /*whole=*/true);
    for (uint32_t i = LaneIndex(); i < args.value_dim; i += kWarpThreads) {
      float value = 0;
      for (uint32_t k = 0; k < row.num_parts; ++k) {
        const uint64_t index = Index(args, row, k, head);
        const float log_sum = args.partial_log_sums[index];
        if (log_sum == NegativeInfinity()) continue;
        value += Exp2(log_sum - largest) * args.partial_outputs[index * args.value_dim + i];
      }
      StoreElement(args.query_type, args.output,
                   row.query * args.output_token_stride + uint64_t{head} * args.value_dim + i,
                   value * end.factor);
    }
    if (args.lse != nullptr && LaneIndex() == 0) {
      args.lse[uint64_t{row.query} * args.num_heads + head] = end.log_sum * kLn2;
    }
  }

  static PAGODA_DEVICE uint64_t Index(const AttentionArgs& args, const MergedRow& row, uint32_t k,
                                      uint32_t head) {
    return (uint64_t{row.partial} + uint64_t{k} * row.step) * args.num_heads + head;
  }
};

struct CallMergeKernel {
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = CallMergeArgs;

  static PAGODA_DEVICE void Run(const CallMergeArgs& args) {
    const uint64_t end = uint64_t{args.num_tokens} * args.num_heads;
    const uint64_t step = uint64_t{GridBlocks()} * kWarps;
    for (uint64_t i = uint64_t{BlockIndex()} * kWarps + WarpIndex(); i < end; i += step) {
      Merge(args, i);
    }
  }

  // Row i is head i % num_heads of token i / num_heads.
  static PAGODA_DEVICE void Merge(const CallMergeArgs& args, uint64_t i) {
    float largest = NegativeInfinity();
    float weights[kMaxCallParts];
#pragma unroll
    for (uint32_t k = 0; k < kMaxCallParts; ++k) {
      weights[k] = k < args.num_parts ? args.lse_of[k][i] : NegativeInfinity();
      largest = weights[k] > largest ? weights[k] : largest;
    }
    float sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < kMaxCallParts; ++k) {
      weights[k] = weights[k] == NegativeInfinity() ? 0.0f : Exp2((weights[k] - largest) * kLog2E);
      sum += weights[k];
    }
    const float factor = sum == 0 ? 0.0f : 1.0f / sum;
    const uint64_t target =
        i / args.num_heads * args.output_token_stride + i % args.num_heads * args.value_dim;
    for (uint32_t e = LaneIndex(); e < args.value_dim; e += kWarpThreads) {
      float value = 0;
#pragma unroll
      for (uint32_t k = 0; k < kMaxCallParts; ++k) {
        if (weights[k] == 0) continue;  // The output of a part without keys may be anything.
        value += weights[k] * LoadElement(args.type, args.output_of[k], i * args.value_dim + e);
      }
      StoreElement(args.type, args.output, target + e, value * factor);
    }
    // Every lane has read the log-sum-exps, which may be this one.
    SyncWarp();
    if (args.lse != nullptr && LaneIndex() == 0) {
      args.lse[i] = sum == 0 ? NegativeInfinity() : largest + Log2(sum) * kLn2;
    }
  }
};

}  // namespace

int LaunchPartialMerge(const AttentionArgs& args, uint32_t max_rows, Stream stream) {
  const uint64_t warps = uint64_t{max_rows} * args.num_heads;
  return Launch<PartialMergeKernel>(
      {.blocks = (warps + PartialMergeKernel::kWarps - 1) / PartialMergeKernel::kWarps}, stream,
      args);
}

int LaunchCallMerge(const CallMergeArgs& args, Stream stream) {
  const uint64_t warps = uint64_t{args.num_tokens} * args.num_heads;
  return Launch<CallMergeKernel>(
      {.blocks = (warps + CallMergeKernel::kWarps - 1) / CallMergeKernel::kWarps}, stream, args);
}

}  // namespace pagoda::kernels::cuda
