// The operations of a batch, between the wire's messages and the core's values. Field for field;
// decides nothing: what the core's types can hold is the core's to judge.
#ifndef PAGODA_WIRE_OPERATIONS_H_
#define PAGODA_WIRE_OPERATIONS_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/operation.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// Durations are rounded up to whole milliseconds, which is what the wire counts.
v1::Operation OperationToProto(const Operation& operation);
// The operation that a message asks for. Fields that are not served are the caller's to refuse
// (CheckServed). Errors: INVALID_ARGUMENT where it names none, and for what the core's types cannot
// hold: a digest that has not 32 bytes, a priority above 100, a duration beyond 2^63 - 1
// milliseconds, a generated duration without a priority, a lane or a prefetch target that is not
// known. More than kMaxRetentionRanges ranges are refused by their number, before any is copied.
absl::StatusOr<Operation> OperationFromProto(const v1::Operation& proto);

v1::Batch BatchToProto(absl::Span<const Operation> operations, StepRange steps);
StepRange StepsFromProto(const v1::Batch& proto);

// The prompt that an operator inspects: as a MatchPrefix names it.
v1::InspectPrefixRequest InspectRequestOf(const MatchPrefix& prompt);
// Errors: INVALID_ARGUMENT (a digest that has not 32 bytes).
absl::StatusOr<MatchPrefix> PromptFromProto(const v1::InspectPrefixRequest& proto);

}  // namespace pagoda

#endif  // PAGODA_WIRE_OPERATIONS_H_
