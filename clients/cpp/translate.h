// The client's direction of the wire: operations out, results in. Field for field; decides nothing.
#ifndef PAGODA_CLIENTS_CPP_TRANSLATE_H_
#define PAGODA_CLIENTS_CPP_TRANSLATE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "manager/cache_client.h"
#include "manager/operation.h"
#include "pagoda/v1/cache.pb.h"
#include "pools/types.h"

namespace pagoda {

// 0 on the wire is full attention.
uint32_t WindowToProto(WindowSize window);
WindowSize WindowFromProto(uint32_t window_size);

v1::Operation OperationToProto(const Operation& operation);
v1::Batch BatchToProto(absl::Span<const Operation> operations);

// Error: the operation's own, by reason; INTERNAL for a result without content or with an enum
// value that this client does not know.
absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto);

BatchResult BatchResultFromProto(const v1::BatchResult& proto);
CacheInfo CacheInfoFromProto(const v1::CacheInfo& proto);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_TRANSLATE_H_
