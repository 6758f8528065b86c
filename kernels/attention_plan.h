// How one attention call is cut into pieces of like cost that run side by side.
#ifndef PAGODA_KERNELS_ATTENTION_PLAN_H_
#define PAGODA_KERNELS_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/attention_mask.h"

namespace pagoda::kernels {

// What a plan depends on; the values of tables, scales and pointers are no part of it.
struct PlanShape {
  absl::Span<const int32_t> query_starts;     // [S + 1], as in PagedAttentionParams.
  absl::Span<const int32_t> context_lengths;  // [S]
  AttentionMask mask;
  uint32_t num_kv_heads = 0;
};

struct PlanOptions {
  uint32_t num_workers = 1;   // Threads, or thread blocks that a GPU runs at a time.
  uint32_t query_tokens = 1;  // Most query tokens of an item.
  // Contexts are cut at the multiples of this, in tokens. An item of more than
  // split_query_tokens query tokens is never cut: there are enough others.
  uint32_t split_tokens = 512;
  uint32_t split_query_tokens = 1;
};

// Some query tokens of a sequence in all heads, against some keys of its context.
struct AttentionItem {
  uint32_t sequence = 0;
  uint32_t first_query = 0;  // Row of the batch: query_starts[sequence] is the sequence's first.
  uint32_t num_queries = 0;
  uint32_t first_key = 0;  // Position in the context.
  uint32_t end_key = 0;    // Behind the last one. No keys: the output is that of no keys.
  // Row of the first query's result among the partial ones; kWhole: it is final and goes to the
  // output.
  uint32_t partial = 0;
  static constexpr uint32_t kWhole = ~uint32_t{0};
  friend bool operator==(const AttentionItem&, const AttentionItem&) = default;
};

// Partial results that make the output's rows first_query to first_query + num_queries - 1. Those
// of row r are at partial + r + k * num_queries for k = 0 to num_parts - 1, by ascending keys.
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
// 1. Each query token is in the items whose keys, together, are all that its mask lets it see, each
// once; in one item, which is whole, or in num_parts of them, whose partial rows one merge names.
// 2. Where a sequence is cut depends on its own lengths, the mask and the options but the number of
// workers: its results have the same bits whatever else is in the batch.
// 3. Worker w does the units worker_starts[w] to worker_starts[w + 1] - 1, in order. Unit u is item
// u / num_kv_heads for the KV head u % num_kv_heads.
// 4. The order of items, and with it that of merges, is fixed by the shape and the options.
struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<AttentionMerge> merges;
  std::vector<uint64_t> worker_starts;  // [num_workers + 1], from 0 to items x KV heads.
  uint64_t num_partials = 0;            // Partial rows, each of every query head.
  uint32_t num_kv_heads = 0;
  friend bool operator==(const AttentionPlan&, const AttentionPlan&) = default;
};

// REQUIRES: lengths that PagedAttention takes; no option is 0. Host only. Cost: O(S + pieces),
// where pieces are all that split_tokens makes of each item's context, those too that the mask
// hides.
AttentionPlan PlanAttention(const PlanShape& shape, const PlanOptions& options);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_PLAN_H_
