// The operations of a batch, from the wire's messages to the core's values. Decides nothing: what
// the core's types can hold is the core's to judge.
#ifndef PAGODA_SERVER_TRANSLATE_OPERATIONS_H_
#define PAGODA_SERVER_TRANSLATE_OPERATIONS_H_

#include "absl/status/statusor.h"
#include "manager/operation.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda::server {

// The operation that a message asks for. Fields that are not served are the caller's to refuse
// (CheckServed). Errors: INVALID_ARGUMENT where it names none, and for what the core's types cannot
// hold: a digest that has not 32 bytes, a priority above 100, a duration beyond 2^63 - 1
// milliseconds, a generated duration without a priority, a lane or a prefetch target that is not
// known. More than kMaxRetentionRanges ranges are refused by their number, before any is copied.
absl::StatusOr<Operation> OperationFromProto(const v1::Operation& proto);

// The prompt that an operator inspects. Errors: INVALID_ARGUMENT (a digest that has not 32 bytes).
absl::StatusOr<MatchPrefix> PromptFromProto(const v1::InspectPrefixRequest& proto);

StepRange StepsFromProto(const v1::Batch& proto);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TRANSLATE_OPERATIONS_H_
