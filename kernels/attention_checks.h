// What a paged attention on the host checks before it follows the tables.
#ifndef PAGODA_KERNELS_ATTENTION_CHECKS_H_
#define PAGODA_KERNELS_ATTENTION_CHECKS_H_

#include "absl/status/status.h"
#include "kernels/attention_plan.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels {

// CheckShapes, then the contents of query_starts, context_lengths and block_tables, which are host
// memory. InvalidArgument names the argument and the sequence. Cost: O(table entries in use).
absl::Status CheckHostArguments(const PagedAttentionParams& params);

// InvalidArgument unless the plan's items and merges cover what the mask lets the params' queries
// see, so that a kernel that follows it stays within the params. REQUIRES: CheckHostArguments is
// OK. Cost: O(S + items).
absl::Status CheckPlan(const AttentionPlan& plan, const PagedAttentionParams& params);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_CHECKS_H_
