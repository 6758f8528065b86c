// The arguments of an attention call's kernels: plain numbers and device pointers.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_ARGS_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention_mask.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

// A plan in device memory: this header, the items (those of few rows first), the merged rows.
struct PlanHeader {
  uint32_t num_short_items;
  uint32_t num_long_items;
  uint32_t num_merged_rows;
  uint32_t unused;
};

// An AttentionItem in words of 16 bytes.
struct alignas(16) PlannedItem {
  uint32_t sequence;
  uint32_t first_query;
  uint32_t num_queries;
  uint32_t first_key;
  uint32_t end_key;
  uint32_t partial;
  uint32_t unused[2];
};

// A query token. Its partial rows are partial + k * step for k = 0 to num_parts - 1.
struct alignas(16) MergedRow {
  uint32_t query;
  uint32_t partial;
  uint32_t step;
  uint32_t num_parts;
};

inline constexpr uint32_t kWholeItem = ~uint32_t{0};

struct AttentionArgs {
  const std::byte* query;
  std::byte* output;
  float* lse;
  ElementType query_type;
  uint64_t query_token_stride;
  uint64_t output_token_stride;
  uint32_t num_heads;
  uint32_t group;  // Query heads per KV head.
  float scale;
  float soft_cap;
  const float* alibi_slopes;
  const float* sink_logits;
  AttentionMask mask;
  const int32_t* query_starts;
  const int32_t* context_lengths;
  const int32_t* block_tables;
  uint64_t block_table_stride;
  KvLayer kv;
  uint32_t value_dim;

  const PlanHeader* plan;
  const PlannedItem* items;
  const MergedRow* merged_rows;
  // Partial rows, [partials][num_heads][value_dim], and the base-2 logarithms of their sums of
  // weights, [partials][num_heads], without any sink.
  float* partial_outputs;
  float* partial_log_sums;
};

// The items that a launch computes.
enum class ItemKind : uint8_t { kShort, kLong };

struct AttentionLaunch {
  AttentionArgs args;
  ItemKind kind;
};

// Kernels. They return 0 or CUDA's error.
int LaunchGeneric(const AttentionLaunch& launch, uint64_t max_items, Stream stream);
int LaunchPartialMerge(const AttentionArgs& args, uint32_t max_rows, Stream stream);
// Whether types and alignment fit the tensor cores.
bool IsAlignedForTensorCores(const AttentionArgs& args);
// Whether the next two functions support the call.
bool HasTensorKernels(const AttentionArgs& args);
int LaunchDecode(const AttentionLaunch& launch, uint64_t max_items, uint32_t most_rows,
                 Stream stream);
int LaunchPrefill(const AttentionLaunch& launch, uint64_t max_items, Stream stream);
// For latents larger than other kernels' head_dim, for items of either kind.
bool HasLatentKernel(const AttentionArgs& args);
int LaunchLatent(const AttentionLaunch& launch, uint64_t max_items, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_ARGS_H_
