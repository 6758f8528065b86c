// Cuts an attention call into pieces of similar cost that run in parallel.
#ifndef PAGODA_KERNELS_ATTENTION_PLAN_H_
#define PAGODA_KERNELS_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention_mask.h"

namespace pagoda::kernels {

// The inputs of a plan. A plan does not depend on the values of tables, scales and pointers.
struct PlanShape {
  absl::Span<const int32_t> query_starts;     // [S + 1], as in PagedAttentionParams.
  absl::Span<const int32_t> context_lengths;  // [S]
  AttentionMask mask;
  uint32_t num_kv_heads = 0;
};

struct PlanOptions {
  uint32_t num_workers = 1;   // Threads, or thread blocks that run on a GPU at the same time.
  uint32_t query_tokens = 1;  // The most query tokens of an item.
  // Contexts are cut at multiples of this, in tokens. An item with more than split_query_tokens
  // query tokens is never cut: such a sequence has enough other items.
  uint32_t split_tokens = 512;
  uint32_t split_query_tokens = 1;
};

// Some query tokens of a sequence, in all heads, against some keys of its context.
struct AttentionItem {
  uint32_t sequence = 0;
  uint32_t first_query = 0;  // A row of the batch; the first is query_starts[sequence].
  uint32_t num_queries = 0;
  uint32_t first_key = 0;  // A position in the context.
  uint32_t end_key = 0;    // Exclusive. Without keys, the output is that of no keys.
  // The row of the first query's result among the partial results. kWhole: the result is final and
  // goes to the output.
  uint32_t partial = 0;
  static constexpr uint32_t kWhole = ~uint32_t{0};
  friend bool operator==(const AttentionItem&, const AttentionItem&) = default;
};

// The partial results that make the output rows first_query to first_query + num_queries - 1. The
// partials of row r are at partial + r + k * num_queries for k = 0 to num_parts - 1, by ascending
// keys.
struct AttentionMerge {
  uint32_t first_query = 0;
  uint32_t num_queries = 0;
  uint32_t partial = 0;
  uint32_t num_parts = 0;
  friend bool operator==(const AttentionMerge&, const AttentionMerge&) = default;
};

// A plain value: it can be kept, compared, sent to a device, and used for every layer of a step.
//
// Invariants
// 1. The items of a query token contain each key that its mask lets it see exactly once. The token
// is in one item, which is whole, or in num_parts items, whose partial rows one merge names.
// 2. Cuts of a sequence depend only on its own lengths, the mask, and the options except
// num_workers. Its results thus have the same bits in every batch.
// 3. Worker w runs the units worker_starts[w] to worker_starts[w + 1] - 1, in order. Unit u is item
// u / num_kv_heads for the KV head u % num_kv_heads.
// 4. The shape and the options determine the order of items, and thus the order of merges.
struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<AttentionMerge> merges;
  std::vector<uint64_t> worker_starts;  // [num_workers + 1], from 0 to items x KV heads.
  uint64_t num_partials = 0;            // Partial rows; each has all query heads.
  uint32_t num_kv_heads = 0;
  friend bool operator==(const AttentionPlan&, const AttentionPlan&) = default;
};

// REQUIRES: lengths that PagedAttention accepts; no option is 0. Host only. Cost: O(S + pieces).
// Pieces are all parts into which split_tokens divides each item's context, including parts that
// the mask hides.
AttentionPlan PlanAttention(const PlanShape& shape, const PlanOptions& options);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_PLAN_H_
