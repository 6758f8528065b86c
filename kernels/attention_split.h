// Chooses the length of a plan's pieces for a device with many workers.
#ifndef PAGODA_KERNELS_ATTENTION_SPLIT_H_
#define PAGODA_KERNELS_ATTENTION_SPLIT_H_

#include <cstdint>

#include "kernels/attention_plan.h"

namespace pagoda::kernels {

struct SplitLimits {
  uint32_t granule_tokens = 64;  // The result is a multiple of this.
  // Items of at most this many query tokens are decode; all others are chunks.
  uint32_t short_query_tokens = 1;
  // The shortest piece of a batch in which chunks are cut. It is long because chunks write many
  // partial rows. A multiple of granule_tokens.
  uint32_t long_piece_tokens = 512;
  uint32_t group = 1;                     // Query heads per KV head.
  uint64_t most_partials = ~uint64_t{0};  // The maximum of AttentionPlan::num_partials.
};

// Returns the split_tokens with which options.num_workers workers are expected to finish first.
// Counts only items that `options` allows to be cut. Items that fill the workers stay whole. Fewer
// items are cut into pieces of one length that fill the workers once. The cost of a piece is its
// keys, its start, and the partial rows that it writes. A plan with the returned value has at most
// limits.most_partials partial rows. Batches with different results do not share invariant 2 of
// AttentionPlan. REQUIRES: as PlanAttention; no limit is 0. Cost: O(items that can be cut) for each
// of some dozens of lengths.
uint32_t BalancedSplitTokens(const PlanShape& shape, const PlanOptions& options,
                             const SplitLimits& limits);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_SPLIT_H_
