// Which batches may be sent again when their answer was lost.
#ifndef PAGODA_CLIENTS_CPP_RESEND_H_
#define PAGODA_CLIENTS_CPP_RESEND_H_

#include "absl/types/span.h"
#include "manager/cache_client.h"
#include "manager/operation.h"

namespace pagoda {

enum class Resend {
  kFreely,   // It changes nothing: running it twice is as good as once.
  kUnderId,  // Under its retry_id: the daemon runs it once, and remembers the answer.
  kNever,    // Its answer may be more than the daemon remembers (see v1::Batch.retry_id).
};

// The answer's size is bounded from above by what is asked for, and for a fork or a truncation,
// which do not say how long the sequence is, by the cache's size. Cost: O(operations).
Resend ResendOf(absl::Span<const Operation> operations, const CacheInfo& cache);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_RESEND_H_
