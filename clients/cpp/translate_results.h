// The client's direction of the wire: results in. Field for field; decides nothing.
#ifndef PAGODA_CLIENTS_CPP_TRANSLATE_RESULTS_H_
#define PAGODA_CLIENTS_CPP_TRANSLATE_RESULTS_H_

#include "absl/status/statusor.h"
#include "manager/operation.h"
#include "pagoda/v1/cache.pb.h"

namespace pagoda {

// Error: INTERNAL for a mapping whose strides or enum values this client does not know.
absl::StatusOr<PoolMapping> PoolMappingFromProto(const v1::PoolMapping& proto);

// Error: the operation's own, by reason; INTERNAL for a result without content or with an enum
// value that this client does not know.
absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto);

BatchResult BatchResultFromProto(const v1::BatchResult& proto);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_TRANSLATE_RESULTS_H_
