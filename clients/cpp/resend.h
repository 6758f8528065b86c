// Which batches can be sent again after their answer was lost.
#ifndef PAGODA_CLIENTS_CPP_RESEND_H_
#define PAGODA_CLIENTS_CPP_RESEND_H_

#include "absl/types/span.h"
#include "manager/api/cache_client.h"
#include "manager/api/operation.h"

namespace pagoda {

enum class Resend {
  kFreely,   // The batch changes nothing, so running it twice is harmless.
  kUnderId,  // With a retry_id: the daemon runs the batch once and remembers its answer.
  kNever,    // The answer may be larger than the daemon remembers (see v1::Batch.retry_id).
};

// Decides from an upper bound of the answer's size. The operations bound it. A fork, a truncation
// or a description does not say how long its sequence is; the cache's size bounds these. Cost:
// O(operations).
Resend ResendOf(absl::Span<const Operation> operations, const CacheInfo& cache);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_RESEND_H_
