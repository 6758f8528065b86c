// What a batch came to, between the core's values and the wire's messages. Field for field; decides
// nothing.
#ifndef PAGODA_WIRE_RESULTS_H_
#define PAGODA_WIRE_RESULTS_H_

#include "absl/status/statusor.h"
#include "manager/operation.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// A result, or its operation's error.
void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                            v1::OperationResult* out);
// Error: the operation's own, by reason; INTERNAL for a result without content or with an enum
// value that this version does not know.
absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto);

// The rest of a batch's result: revision, completed tickets, and the sequences that were shortened.
// Of a batch of several parts the last one's holds: it takes the place of what `out` says already.
void BatchStateToProto(const BatchResult& batch, v1::BatchResult* out);
// With the results.
BatchResult BatchResultFromProto(const v1::BatchResult& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_RESULTS_H_
