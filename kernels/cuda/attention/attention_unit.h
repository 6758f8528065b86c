// A kernel's view of one unit of a plan, and the start and the end of its rows.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_UNIT_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_UNIT_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/device/device.h"

namespace pagoda::kernels::cuda {

// The state of a unit of work: an item for one KV head.
struct Unit {
  PlannedItem item;
  uint32_t kv_head;
  uint32_t num_rows;        // Query tokens x group; row r is token r / group, head r % group.
  uint32_t first_position;  // The position of the item's first query token in its context.
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
  unit.first_position = static_cast<uint32_t>(args.context_lengths[s]) -
                        static_cast<uint32_t>(args.query_starts[s + 1]) + unit.item.first_query;
  unit.table = args.block_tables + s * args.block_table_stride;
  return unit;
}

PAGODA_DEVICE uint64_t TokenOffset(const AttentionArgs& args, const Unit& unit, uint32_t key) {
  const uint32_t slot = static_cast<uint32_t>(unit.table[key / args.kv.tokens_per_block]);
  return slot * args.kv.slot_stride_bytes + unit.kv_head * args.kv.head_stride_bytes +
         key % args.kv.tokens_per_block * args.kv.token_stride_bytes;
}

// Whether each slot has its own scales.
PAGODA_DEVICE bool HasSlotScales(const AttentionArgs& args) {
  return args.kv.scales.slot_stride != 0;
}
// The scale of a head in all slots; 1 if each slot has its own.
PAGODA_DEVICE float ScaleOfAllSlots(const KvScales& scales, const float* part, uint32_t kv_head) {
  return part == nullptr || scales.slot_stride != 0 ? 1.0f : part[scales.per_head ? kv_head : 0];
}
PAGODA_DEVICE float KeyScale(const AttentionArgs& args, uint32_t kv_head) {
  return ScaleOfAllSlots(args.kv.scales, args.kv.scales.keys, kv_head);
}
PAGODA_DEVICE float ValueScale(const AttentionArgs& args, uint32_t kv_head) {
  return ScaleOfAllSlots(args.kv.scales, args.kv.scales.values, kv_head);
}

// The scales of a token, if each slot has its own.
struct TokenScales {
  float key = 1;
  float value = 1;
};

// REQUIRES: the key's block has a slot.
PAGODA_DEVICE TokenScales ScalesOfToken(const AttentionArgs& args, const Unit& unit, uint32_t key) {
  const KvScales& scales = args.kv.scales;
  const auto slot = static_cast<uint32_t>(unit.table[key / args.kv.tokens_per_block]);
  const uint64_t at = slot * scales.slot_stride + (scales.per_head ? unit.kv_head : 0);
  TokenScales found;
  if (scales.keys != nullptr) found.key = scales.keys[at];
  if (scales.values != nullptr) found.value = scales.values[at];
  return found;
}

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.693147180559945309417f;

// Turns the product q . k into a score, as a base-2 logarithm.
PAGODA_DEVICE float Score2(const AttentionArgs& args, float scale, float product, uint32_t head,
                           int64_t distance) {
  float score = scale * product;
  if (args.soft_cap > 0) score = args.soft_cap * Tanh(score / args.soft_cap);
  if (args.alibi_slopes != nullptr) score += args.alibi_slopes[head] * static_cast<float>(distance);
  return score * kLog2E;
}

// The end of a row: the factor of its sum of weighted values, and the base-2 logarithm of the sum
// of weights.
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

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_UNIT_H_
