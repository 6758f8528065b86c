// What can be said of an operation without the cache's state. It costs as much as the operation is
// long, so whoever holds a lock around the cache asks before taking it.
#ifndef PAGODA_MANAGER_OPERATION_CHECKS_H_
#define PAGODA_MANAGER_OPERATION_CHECKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "manager/operation.h"
#include "manager/retention.h"

namespace pagoda {

// Of one request. A sequence keeps its ranges, so their number is bounded.
inline constexpr size_t kMaxRetentionRanges = 65'536;

// INVALID_ARGUMENT unless the extra ids, where there are any, are one a token, the items are in
// order, not empty, do not overlap and lie within `token_count` tokens, and the retention, where
// there is one, has at most kMaxRetentionRanges ranges and CheckRetention allows it. Cost: O(items
// + ranges).
absl::Status CheckContent(size_t token_count, size_t extra_ids,
                          absl::Span<const MultimodalItem> items,
                          const SequenceRetention* retention);
// The same of an operation that has a prompt or a retention; OK of any other.
absl::Status CheckContent(const Operation& operation);
// Whether CheckContent(operation) costs more than a few steps.
bool HasLongContent(const Operation& operation);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_OPERATION_CHECKS_H_
