// Checks that paged attention on the host runs before it follows the tables.
#ifndef PAGODA_KERNELS_ATTENTION_CHECKS_H_
#define PAGODA_KERNELS_ATTENTION_CHECKS_H_

#include "absl/status/status.h"
#include "kernels/attention_plan.h"
#include "kernels/paged_attention.h"

namespace pagoda::kernels {

// CheckShapes, then the contents of query_starts, context_lengths and block_tables, which must be
// host memory. InvalidArgument names the argument and the sequence. Cost: O(table entries in use).
absl::Status CheckHostArguments(const PagedAttentionParams& params);

// InvalidArgument unless the plan's items and merges cover exactly the keys that the mask lets the
// params' queries see. A kernel that follows such a plan stays within the params. REQUIRES:
// CheckHostArguments is OK. Cost: O(S + items).
absl::Status CheckPlan(const AttentionPlan& plan, const PagedAttentionParams& params);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_CHECKS_H_
