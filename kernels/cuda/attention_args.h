// One call of attention as its kernels see it: plain numbers and device pointers.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ARGS_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ARGS_H_

#include <cstdint>

#include "kernels/attention_mask.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/stream.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

// A plan in device memory: this, then the items (those of few rows first), then the merged rows.
struct PlanHeader {
  uint32_t num_short_items;
  uint32_t num_long_items;
  uint32_t num_merged_rows;
  uint32_t unused;
};

// AttentionItem, in words of 16 bytes.
struct alignas(16) PlannedItem {
  uint32_t sequence;
  uint32_t first_query;
  uint32_t num_queries;
  uint32_t first_key;
  uint32_t end_key;
  uint32_t partial;
  uint32_t unused[2];
};

// A query token whose partial rows are partial + k * step for k = 0 to num_parts - 1.
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
  uint32_t group;  // Query heads of a KV head.
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
  // Partial rows: [partials][num_heads][value_dim], and the logarithms to base 2 of their sums of
  // weights, [partials][num_heads], without any sink.
  float* partial_outputs;
  float* partial_log_sums;
};

// Which items a launch is for.
enum class ItemKind : uint8_t { kShort, kLong };

struct AttentionLaunch {
  AttentionArgs args;
  ItemKind kind;
};

// Where a unit of work, an item for one KV head, stands.
struct Unit {
  PlannedItem item;
  uint32_t kv_head;
  uint32_t num_rows;       // Query tokens x group; row r is token r / group, head r % group.
  int64_t first_position;  // Of the item's first query token in its context.
  const int32_t* table;
};

PAGODA_DEVICE uint64_t NumUnits(const AttentionArgs& args, ItemKind kind) {
  const uint32_t items =
      kind == ItemKind::kShort ? args.plan->num_short_items : args.plan->num_long_items;
  return uint64_t{items} * args.kv.num_kv_heads;
}

PAGODA_DEVICE Unit FindUnit(const AttentionArgs& args, ItemKind kind, uint64_t index) {
  const auto number = static_cast<uint32_t>(index / args.kv.num_kv_heads);
  Unit unit;
  unit.item = args.items[kind == ItemKind::kShort ? number : args.plan->num_short_items + number];
  unit.kv_head = static_cast<uint32_t>(index % args.kv.num_kv_heads);
  unit.num_rows = unit.item.num_queries * args.group;
  const uint32_t s = unit.item.sequence;
  unit.first_position =
      int64_t{args.context_lengths[s]} - args.query_starts[s + 1] + unit.item.first_query;
  unit.table = args.block_tables + s * args.block_table_stride;
  return unit;
}

PAGODA_DEVICE uint64_t TokenOffset(const AttentionArgs& args, const Unit& unit, uint32_t key) {
  const uint32_t slot = static_cast<uint32_t>(unit.table[key / args.kv.tokens_per_block]);
  return slot * args.kv.slot_stride_bytes + unit.kv_head * args.kv.head_stride_bytes +
         key % args.kv.tokens_per_block * args.kv.token_stride_bytes;
}

PAGODA_DEVICE float KeyScale(const AttentionArgs& args, uint32_t kv_head) {
  const KvScales& scales = args.kv.scales;
  return scales.keys == nullptr ? 1.0f : scales.keys[scales.per_head ? kv_head : 0];
}
PAGODA_DEVICE float ValueScale(const AttentionArgs& args, uint32_t kv_head) {
  const KvScales& scales = args.kv.scales;
  return scales.values == nullptr ? 1.0f : scales.values[scales.per_head ? kv_head : 0];
}

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.693147180559945309417f;

// A score as a logarithm to base 2, of the product q . k.
PAGODA_DEVICE float Score2(const AttentionArgs& args, float scale, float product, uint32_t head,
                           int64_t distance) {
  float score = scale * product;
  if (args.soft_cap > 0) score = args.soft_cap * Tanh(score / args.soft_cap);
  if (args.alibi_slopes != nullptr) score += args.alibi_slopes[head] * static_cast<float>(distance);
  return score * kLog2E;
}

// How a row ends: what its sum of weighted values is multiplied by, and the logarithm to base 2 of
// the sum of weights.
struct RowEnd {
  float factor;
  float log_sum;
};

PAGODA_DEVICE RowEnd EndRow(const AttentionArgs& args, float largest, float sum, uint32_t head,
                            bool whole) {
  float total = sum;
  float reference = largest;
  float factor = 1;
  if (whole && args.sink_logits != nullptr) {
    const float sink = args.sink_logits[head] * kLog2E;
    reference = largest > sink ? largest : sink;
    factor = largest == NegativeInfinity() ? 0.0f : Exp2(largest - reference);
    total = sum * factor + Exp2(sink - reference);
  }
  RowEnd end;
  end.factor = total == 0 ? 0.0f : factor / total;
  end.log_sum = total == 0 ? NegativeInfinity() : reference + Log2(total);
  return end;
}

// Kernels. 0, or CUDA's error.
int LaunchGeneric(const AttentionLaunch& launch, uint64_t max_items, Stream stream);
int LaunchPartialMerge(const AttentionArgs& args, uint32_t max_rows, Stream stream);
bool HasTensorKernels(const AttentionArgs& args);
int LaunchDecode(const AttentionLaunch& launch, uint64_t max_items, uint32_t most_rows,
                 Stream stream);
int LaunchPrefill(const AttentionLaunch& launch, uint64_t max_items, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ARGS_H_
