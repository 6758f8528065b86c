// One batch of operations, from the wire and back.
#ifndef PAGODA_SERVER_BATCH_H_
#define PAGODA_SERVER_BATCH_H_

#include "absl/status/status.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda::server {

// Runs the operations that can be, in order and under one taking of the core's lock; one that asks
// for nothing, or for what is not served, has its error in its own result and the others run.
// Errors, nothing has run: UNKNOWN_SESSION, STALE_SESSION, BATCH_TOO_LARGE.
absl::Status RunBatch(SharedManager& manager, SessionRef session, const v1::Batch& batch,
                      v1::BatchResult* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BATCH_H_
