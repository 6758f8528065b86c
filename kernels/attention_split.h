// Where a device of many workers cuts contexts: how long the pieces of a plan are.
#ifndef PAGODA_KERNELS_ATTENTION_SPLIT_H_
#define PAGODA_KERNELS_ATTENTION_SPLIT_H_

#include <cstdint>

#include "kernels/attention_plan.h"

namespace pagoda::kernels {

struct SplitLimits {
  uint32_t granule_tokens = 64;  // The result is a multiple of this.
  // Items of at most so many query tokens are decode, the others chunks.
  uint32_t short_query_tokens = 1;
  // A batch in which chunks are cut has no shorter pieces than these, for chunks write many partial
  // rows. A multiple of granule_tokens.
  uint32_t long_piece_tokens = 512;
  uint32_t group = 1;                     // Query heads of a KV head.
  uint64_t most_partials = ~uint64_t{0};  // Of AttentionPlan::num_partials.
};

// The split_tokens with which options.num_workers workers are expected to finish first. Only items
// that `options` lets be cut count. Items that fill the workers stay whole; fewer items become
// pieces of one length that fill the workers once. A piece costs its keys, its start, and the
// partial rows that it writes. A plan that is cut by the result has at most limits.most_partials
// partial rows. Invariant 2 of AttentionPlan does not hold over batches for which the result
// differs.
// REQUIRES: as PlanAttention; no limit is 0. Cost: O(items that may be cut) for each length tried,
// which are some dozens.
uint32_t BalancedSplitTokens(const PlanShape& shape, const PlanOptions& options,
                             const SplitLimits& limits);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_SPLIT_H_
