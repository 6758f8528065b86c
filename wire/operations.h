// Converts the operations of a batch between the wire's messages and the core's values, field by
// field. The core checks the values, if its types can hold them.
#ifndef PAGODA_WIRE_OPERATIONS_H_
#define PAGODA_WIRE_OPERATIONS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/api/operation.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// Rounds durations up to whole milliseconds, the wire's unit.
v1::Operation OperationToProto(const Operation& operation);
// The operation of a message. The caller refuses fields that are not served (CheckServed).
//
// Errors: INVALID_ARGUMENT if the message has no operation, or a value that the core's types cannot
// hold: a digest that does not have 32 bytes, a priority above 100, a duration above 2^63 - 1
// milliseconds, a generated duration without a priority, an unknown lane or prefetch target. Also
// for more than kMaxRetentionRanges ranges, before any is copied.
absl::StatusOr<Operation> OperationFromProto(const v1::Operation& proto);

v1::Batch BatchToProto(absl::Span<const Operation> operations, StepRange steps);
StepRange StepsFromProto(const v1::Batch& proto);

// The request to inspect the prompt that a MatchPrefix names.
v1::InspectPrefixRequest InspectRequestOf(const MatchPrefix& prompt);
// Errors: INVALID_ARGUMENT (a digest that does not have 32 bytes), INVALID_KEY.
absl::StatusOr<MatchPrefix> PromptFromProto(const v1::InspectPrefixRequest& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_OPERATIONS_H_
