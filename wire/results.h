// Converts the results of a batch from the wire's messages to the core's values, field by field.
#ifndef PAGODA_WIRE_RESULTS_H_
#define PAGODA_WIRE_RESULTS_H_

#include "absl/status/statusor.h"
#include "manager/api/operation.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// Errors: the error of the operation, by reason; INTERNAL for a result without content, with an
// unknown enum value, or with blocks that are not whole rows.
absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto);
// The whole batch's result.
BatchResult BatchResultFromProto(const v1::BatchResult& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_RESULTS_H_
