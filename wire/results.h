// Converts the results of a batch between the core's values and the wire's messages, field by
// field.
#ifndef PAGODA_WIRE_RESULTS_H_
#define PAGODA_WIRE_RESULTS_H_

#include "absl/status/statusor.h"
#include "manager/api/operation.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// A result, or its operation's error.
void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                            v1::OperationResult* out);
// Errors: the error of the operation, by reason; INTERNAL for a result without content or with an
// unknown enum value.
absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto);

// The rest of a batch's result: revision, completed tickets, and the sequences that were shortened.
// Replaces the values in `out`. If a batch runs in several parts, the last part's values count.
void BatchStateToProto(const BatchResult& batch, v1::BatchResult* out);
// The whole batch's result.
BatchResult BatchResultFromProto(const v1::BatchResult& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_RESULTS_H_
