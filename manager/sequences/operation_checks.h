// Checks of an operation that do not need the cache's state. Their cost grows with the operation's
// length, so a caller with a lock around the cache runs them before it takes the lock.
#ifndef PAGODA_MANAGER_SEQUENCES_OPERATION_CHECKS_H_
#define PAGODA_MANAGER_SEQUENCES_OPERATION_CHECKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "events/block_key.h"
#include "manager/api/operation.h"
#include "manager/words/retention.h"

namespace pagoda {

// In one request. A sequence keeps its ranges, so their number is bounded.
inline constexpr size_t kMaxRetentionRanges = 65'536;

// Errors: INVALID_ARGUMENT unless all of these hold. There are no extra ids, or one for each token.
// The items are in order, not empty, do not overlap, and lie within `token_count` tokens. There is
// no retention, or it has at most kMaxRetentionRanges ranges and CheckRetention accepts it. Cost:
// O(items + ranges).
absl::Status CheckContent(size_t token_count, size_t extra_ids,
                          absl::Span<const MultimodalItem> items,
                          const SequenceRetention* retention);
// The same for an operation that has a prompt or a retention; OK for any other.
absl::Status CheckContent(const Operation& operation);
// Whether CheckContent(operation) costs more than a few steps.
bool HasLongContent(const Operation& operation);

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_OPERATION_CHECKS_H_
