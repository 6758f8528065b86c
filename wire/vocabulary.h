// Converts the values that operations, results, status and events share between the wire's messages
// and the core's types, field by field.
#ifndef PAGODA_WIRE_VOCABULARY_H_
#define PAGODA_WIRE_VOCABULARY_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "events/block_hash.h"
#include "events/event.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "manager/words/fetch_outcome.h"
#include "manager/words/ids.h"
#include "pagoda/v1/cache.pb.h"
#include "pools/layout.h"
#include "pools/memory/huge_pages.h"
#include "pools/memory/memory_place.h"
#include "pools/order.h"
#include "pools/types.h"

namespace pagoda {

// 0 on the wire is full attention.
uint32_t WindowToProto(WindowSize window);
WindowSize WindowFromProto(uint32_t window_size);

v1::Tier TierToProto(Tier tier);
// Appends the tiers, nearest first.
void TiersToProto(TierSet tiers, google::protobuf::RepeatedField<int>* out);
// The following FromProto functions return nullopt for UNSPECIFIED, and for a value that this
// version does not know.
std::optional<Tier> TierFromProto(v1::Tier proto);
v1::Medium MediumToProto(Medium medium);
std::optional<Medium> MediumFromProto(v1::Medium proto);
v1::MemoryKind MemoryKindToProto(MemoryKind kind);
std::optional<MemoryKind> MemoryKindFromProto(v1::MemoryKind proto);
v1::MemoryPages MemoryPagesToProto(MemoryPages pages);
std::optional<MemoryPages> MemoryPagesFromProto(v1::MemoryPages proto);
v1::DType DTypeToProto(DType dtype);
std::optional<DType> DTypeFromProto(v1::DType proto);
v1::PoolContent PoolContentToProto(PoolContent content);
std::optional<PoolContent> PoolContentFromProto(v1::PoolContent proto);
v1::FetchOutcome FetchOutcomeToProto(FetchOutcome outcome);
std::optional<FetchOutcome> FetchOutcomeFromProto(v1::FetchOutcome proto);
// The memory lane is 0 on the wire.
v1::Lane LaneToProto(Lane lane);
std::optional<Lane> LaneFromProto(v1::Lane proto);

void SessionToProto(SessionRef session, v1::SessionRef* out);
SessionRef SessionFromProto(const v1::SessionRef& proto);
void NamespaceToProto(const NamespaceKey& key, v1::Namespace* out);
NamespaceKey NamespaceFromProto(const v1::Namespace& proto);

// REQUIRES: finite.
google::protobuf::Timestamp TimeToProto(absl::Time time);
absl::Time TimeFromProto(const google::protobuf::Timestamp& proto);
google::protobuf::Duration DurationToProto(absl::Duration duration);
absl::Duration DurationFromProto(const google::protobuf::Duration& proto);

// A duration as a field of whole milliseconds. A positive duration is at least 1. One that is not
// positive becomes 0, which the daemon refuses. nullopt for infinity: the field stays unset.
std::optional<uint64_t> MillisecondsOf(absl::Duration duration);

}  // namespace pagoda

#endif  // PAGODA_WIRE_VOCABULARY_H_
