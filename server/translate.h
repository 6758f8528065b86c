// Between the wire's messages and the core's values, field for field: what operations, results,
// status and events share. Decides nothing.
#ifndef PAGODA_SERVER_TRANSLATE_H_
#define PAGODA_SERVER_TRANSLATE_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "events/block_hash.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "manager/cache_client.h"
#include "manager/ids.h"
#include "pagoda/v1/cache.pb.h"
#include "pools/memory_place.h"
#include "pools/types.h"

namespace pagoda::server {

// 0 on the wire is full attention.
uint32_t WindowToProto(WindowSize window);
WindowSize WindowFromProto(uint32_t window_size);
v1::Tier TierToProto(Tier tier);
// Of a repeated Tier: adds them, nearest first.
void TiersToProto(TierSet tiers, google::protobuf::RepeatedField<int>* out);
v1::Medium MediumToProto(Medium medium);
v1::MemoryKind MemoryKindToProto(MemoryKind kind);

SessionRef SessionFromProto(const v1::SessionRef& proto);
void SessionToProto(SessionRef session, v1::SessionRef* out);
NamespaceKey NamespaceFromProto(const v1::Namespace& proto);
void NamespaceToProto(const NamespaceKey& key, v1::Namespace* out);
void CacheInfoToProto(const CacheInfo& info, v1::CacheInfo* out);

google::protobuf::Timestamp TimeToProto(absl::Time time);
google::protobuf::Duration DurationToProto(absl::Duration duration);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_TRANSLATE_H_
