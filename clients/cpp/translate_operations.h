// The client's direction of the wire: operations out. Field for field; decides nothing.
#ifndef PAGODA_CLIENTS_CPP_TRANSLATE_OPERATIONS_H_
#define PAGODA_CLIENTS_CPP_TRANSLATE_OPERATIONS_H_

#include "absl/types/span.h"
#include "manager/operation.h"
#include "pagoda/v1/admin.pb.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// Durations are rounded up to whole milliseconds, which is what the wire counts.
v1::Operation OperationToProto(const Operation& operation);
// What an operator inspects: the same prompt as a MatchPrefix names.
v1::InspectPrefixRequest InspectRequestOf(const MatchPrefix& prompt);
v1::Batch BatchToProto(absl::Span<const Operation> operations, StepRange steps);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_TRANSLATE_OPERATIONS_H_
