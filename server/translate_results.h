// What a batch came to, from the core's values to the wire's messages, field for field.
#ifndef PAGODA_SERVER_TRANSLATE_RESULTS_H_
#define PAGODA_SERVER_TRANSLATE_RESULTS_H_

#include "absl/status/statusor.h"
#include "manager/operation.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda::server {

// Where a pool is, and how it is laid out.
void PoolMappingToProto(const PoolMapping& mapping, v1::PoolMapping* out);

// A result, or its operation's error.
void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                            v1::OperationResult* out);

// The rest of a batch's result: revision, completed tickets, and the sequences that were shortened.
// Of a batch of several parts the last one's holds: it takes the place of what `out` says already.
void BatchStateToProto(const BatchResult& batch, v1::BatchResult* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TRANSLATE_RESULTS_H_
