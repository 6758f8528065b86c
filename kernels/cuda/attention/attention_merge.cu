// Merges partial results: those of one call whose keys were cut, and those of several calls. One
// warp per query head of a query token. Parts are added in their order, so that the bits are the
// same in every run.
#include "kernels/cuda/attention/attention_merge_args.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/device/elements.h"
#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

// First each lane has one part's weight. Then each lane has some of the row's elements, and the
// parts are added in their order. A block is one warp, so that the few rows of a small batch are
// spread over the multiprocessors.
struct PartialMergeKernel {
  static constexpr uint32_t kThreads = kWarpThreads;
  static constexpr uint32_t kMinBlocks = 1;
  using Args = AttentionArgs;

  static PAGODA_DEVICE void Run(const AttentionArgs& args) {
    const uint64_t end = uint64_t{args.plan->num_merged_rows} * args.num_heads;
    for (uint64_t i = BlockIndex(); i < end; i += GridBlocks()) {
      Merge(args, args.merged_rows[i / args.num_heads], static_cast<uint32_t>(i % args.num_heads));
    }
  }

 private:
  // The number of parts whose rows are loaded before the first one is used.
  static constexpr uint32_t kLoads = 8;
  // The weight of a part without keys. The content of its row is unspecified.
  static constexpr float kNoKeys = -1;

  static PAGODA_DEVICE void Merge(const AttentionArgs& args, MergedRow row, uint32_t head) {
    float largest = NegativeInfinity();
    for (uint32_t k = LaneIndex(); k < row.num_parts; k += kWarpThreads) {
      largest = LargerOf(args.partial_log_sums[Index(args, row, k, head)], largest);
    }
    for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      largest = LargerOf(largest, ShuffleXor(largest, mask));
    }
    float sum = 0;  // The sum of weights, relative to the largest part's.
    for (uint32_t k = LaneIndex(); k < row.num_parts; k += kWarpThreads) {
      const float weight = WeightOf(args, row, k, head, largest);
      if (weight != kNoKeys) sum += weight;
    }
    const RowEnd end = EndRow(args, largest, SumOfWarp(sum), head, /*whole=*/true);
    // Rows of whole vectors are also aligned to vectors, because the workspace is.
    if (args.value_dim % 4 == 0) {
      MergeValues<4>(args, row, head, largest, end.factor);
    } else {
      MergeValues<1>(args, row, head, largest, end.factor);
    }
    if (args.lse != nullptr && LaneIndex() == 0) {
      args.lse[uint64_t{row.query} * args.num_heads + head] = end.log_sum * kLn2;
    }
  }

  // Each lane takes kElements at a time.
  template <uint32_t kElements>
  static PAGODA_DEVICE void MergeValues(const AttentionArgs& args, const MergedRow& row,
                                        uint32_t head, float largest, float factor) {
    for (uint32_t e = 0; e < args.value_dim; e += kWarpThreads * kElements) {
      const uint32_t element = e + LaneIndex() * kElements;
      const bool has_elements = element < args.value_dim;
      const float* const rows = args.partial_outputs + Index(args, row, 0, head) * args.value_dim +
                                (has_elements ? element : 0);
      const uint64_t step = uint64_t{row.step} * args.num_heads * args.value_dim;
      float values[kElements] = {};
      for (uint32_t part = 0; part < row.num_parts; part += kWarpThreads) {
        const float lanes_weight = WeightOf(args, row, part + LaneIndex(), head, largest);
        const uint32_t left = row.num_parts - part;
        const uint32_t parts = left < kWarpThreads ? left : kWarpThreads;
#pragma unroll 1
        for (uint32_t k = 0; k < parts; k += kLoads) {
          float weights[kLoads];
          float loaded[kLoads][kElements];
// Behind the last part, the last one is loaded again and not used.
#pragma unroll
          for (uint32_t i = 0; i < kLoads; ++i) {
            const uint32_t last = k + i < parts ? k + i : parts - 1;
            LoadValues(rows + uint64_t{part + last} * step, loaded[i]);
          }
#pragma unroll
          for (uint32_t i = 0; i < kLoads; ++i) {
            weights[i] = std::bit_cast<float>(
                Shuffle(std::bit_cast<uint32_t>(lanes_weight), (k + i) % kWarpThreads));
            if (k + i >= parts) weights[i] = kNoKeys;
          }
#pragma unroll
          for (uint32_t i = 0; i < kLoads; ++i) {
            if (weights[i] == kNoKeys) continue;
#pragma unroll
            for (uint32_t j = 0; j < kElements; ++j) values[j] += weights[i] * loaded[i][j];
          }
        }
      }
      if (!has_elements) continue;
#pragma unroll
      for (uint32_t j = 0; j < kElements; ++j) {
        StoreElement(
            args.query_type, args.output,
            row.query * args.output_token_stride + uint64_t{head} * args.value_dim + element + j,
            values[j] * factor);
      }
    }
  }

  // Also kNoKeys behind the last part.
  static PAGODA_DEVICE float WeightOf(const AttentionArgs& args, const MergedRow& row, uint32_t k,
                                      uint32_t head, float largest) {
    if (k >= row.num_parts) return kNoKeys;
    const float log_sum = args.partial_log_sums[Index(args, row, k, head)];
    return log_sum == NegativeInfinity() ? kNoKeys : Exp2(log_sum - largest);
  }

  static PAGODA_DEVICE void LoadValues(const float* from, float (&values)[1]) { values[0] = *from; }
  static PAGODA_DEVICE void LoadValues(const float* from, float (&values)[4]) {
    const Vector16 vector = LoadGlobal16(from);
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) values[j] = std::bit_cast<float>(vector.words[j]);
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
        if (weights[k] == 0) continue;  // The output of a part without keys is unspecified.
        value += weights[k] * LoadElement(args.type, args.output_of[k], i * args.value_dim + e);
      }
      StoreElement(args.type, args.output, target + e, value * factor);
    }
    // All lanes have read the log-sum-exps; args.lse can be one of them.
    SyncWarp();
    if (args.lse != nullptr && LaneIndex() == 0) {
      args.lse[i] = sum == 0 ? NegativeInfinity() : largest + Log2(sum) * kLn2;
    }
  }
};

}  // namespace

int LaunchPartialMerge(const AttentionArgs& args, uint32_t max_rows, Stream stream) {
  return Launch<PartialMergeKernel>({.blocks = uint64_t{max_rows} * args.num_heads}, stream, args);
}

int LaunchCallMerge(const CallMergeArgs& args, Stream stream) {
  const uint64_t warps = uint64_t{args.num_tokens} * args.num_heads;
  return Launch<CallMergeKernel>(
      {.blocks = (warps + CallMergeKernel::kWarps - 1) / CallMergeKernel::kWarps}, stream, args);
}

}  // namespace pagoda::kernels::cuda
