// Between the wire's messages and the core's values, field for field; decides nothing.
#ifndef PAGODA_SERVER_TRANSLATE_H_
#define PAGODA_SERVER_TRANSLATE_H_

#include "absl/status/statusor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "manager/cache_client.h"
#include "manager/operation.h"
#include "pagoda/v1/cache.pb.h"
#include "pools/types.h"

namespace pagoda::server {

// 0 on the wire is full attention.
uint32_t WindowToProto(WindowSize window);
WindowSize WindowFromProto(uint32_t window_size);
v1::Tier TierToProto(Tier tier);

SessionRef SessionFromProto(const v1::SessionRef& proto);
void SessionToProto(SessionRef session, v1::SessionRef* out);
NamespaceKey NamespaceFromProto(const v1::Namespace& proto);
void NamespaceToProto(const NamespaceKey& key, v1::Namespace* out);
void CacheInfoToProto(const CacheInfo& info, v1::CacheInfo* out);

// The operation that a message asks for. Errors: INVALID_ARGUMENT where it names none. Fields that
// are not served are the caller's to refuse (CheckServed).
absl::StatusOr<Operation> OperationFromProto(const v1::Operation& proto);
// A result, or its operation's error.
void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                            v1::OperationResult* out);

google::protobuf::Timestamp TimeToProto(absl::Time time);
google::protobuf::Duration DurationToProto(absl::Duration duration);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TRANSLATE_H_
