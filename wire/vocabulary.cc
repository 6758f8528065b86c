#include "wire/vocabulary.h"

#include <algorithm>
#include <array>

#include "wire/enum_pairs.h"

namespace pagoda {
namespace {

constexpr std::array kMedia = {EnumPair{Medium::kGpu, v1::MEDIUM_GPU},
                               EnumPair{Medium::kHost, v1::MEDIUM_HOST},
                               EnumPair{Medium::kDisk, v1::MEDIUM_DISK}};

constexpr std::array kMemoryKinds = {EnumPair{MemoryKind::kHost, v1::MEMORY_KIND_HOST},
                                     EnumPair{MemoryKind::kCuda, v1::MEMORY_KIND_CUDA}};

constexpr std::array kMemoryPages = {
    EnumPair{MemoryPages::kPlain, v1::MEMORY_PAGES_PLAIN},
    EnumPair{MemoryPages::kTransparent, v1::MEMORY_PAGES_TRANSPARENT},
    EnumPair{MemoryPages::k2MiB, v1::MEMORY_PAGES_2MIB},
    EnumPair{MemoryPages::k1GiB, v1::MEMORY_PAGES_1GIB}};

constexpr std::array kDTypes = {EnumPair{DType::kFloat32, v1::DTYPE_FLOAT32},
                                EnumPair{DType::kFloat16, v1::DTYPE_FLOAT16},
                                EnumPair{DType::kBFloat16, v1::DTYPE_BFLOAT16},
                                EnumPair{DType::kFloat8E4M3, v1::DTYPE_FLOAT8_E4M3},
                                EnumPair{DType::kFloat8E5M2, v1::DTYPE_FLOAT8_E5M2},
                                EnumPair{DType::kUint8, v1::DTYPE_UINT8}};

constexpr std::array kPoolContents = {EnumPair{PoolContent::kElements, v1::POOL_CONTENT_ELEMENTS},
                                      EnumPair{PoolContent::kScales, v1::POOL_CONTENT_SCALES},
                                      EnumPair{PoolContent::kOpaque, v1::POOL_CONTENT_OPAQUE}};

constexpr std::array kLanes = {EnumPair{Lane::kMemory, v1::LANE_MEMORY},
                               EnumPair{Lane::kFetch, v1::LANE_FETCH},
                               EnumPair{Lane::kBackup, v1::LANE_BACKUP}};

constexpr std::array kFetchOutcomePairs = {
    EnumPair{FetchOutcome::kFetched, v1::FETCH_OUTCOME_FETCHED},
    EnumPair{FetchOutcome::kCached, v1::FETCH_OUTCOME_CACHED},
    EnumPair{FetchOutcome::kMissing, v1::FETCH_OUTCOME_MISSING},
    EnumPair{FetchOutcome::kPartly, v1::FETCH_OUTCOME_PARTLY},
    EnumPair{FetchOutcome::kFailed, v1::FETCH_OUTCOME_FAILED},
    EnumPair{FetchOutcome::kSlower, v1::FETCH_OUTCOME_SLOWER},
    EnumPair{FetchOutcome::kNoRoom, v1::FETCH_OUTCOME_NO_ROOM},
    EnumPair{FetchOutcome::kRefused, v1::FETCH_OUTCOME_REFUSED},
    EnumPair{FetchOutcome::kCancelled, v1::FETCH_OUTCOME_CANCELLED},
    EnumPair{FetchOutcome::kNoSource, v1::FETCH_OUTCOME_NO_SOURCE}};
static_assert(kFetchOutcomePairs.size() == kFetchOutcomes);

}  // namespace

uint32_t WindowToProto(WindowSize window) { return window == kFullAttention ? 0 : window.value(); }

WindowSize WindowFromProto(uint32_t window_size) {
  return window_size == 0 ? kFullAttention : WindowSize(window_size);
}

v1::Tier TierToProto(Tier tier) { return static_cast<v1::Tier>(tier.value() + v1::TIER_PRIMARY); }

std::optional<Tier> TierFromProto(v1::Tier proto) {
  if (proto < v1::TIER_PRIMARY || proto > static_cast<int>(kMaxTiers)) return std::nullopt;
  return Tier(proto - v1::TIER_PRIMARY);
}

void TiersToProto(TierSet tiers, google::protobuf::RepeatedField<int>* out) {
  tiers.ForEach([out](Tier tier) { out->Add(TierToProto(tier)); });
}

v1::Medium MediumToProto(Medium medium) { return ToProto(kMedia, medium); }
std::optional<Medium> MediumFromProto(v1::Medium proto) { return FromProto(kMedia, proto); }

v1::MemoryKind MemoryKindToProto(MemoryKind kind) { return ToProto(kMemoryKinds, kind); }
std::optional<MemoryKind> MemoryKindFromProto(v1::MemoryKind proto) {
  return FromProto(kMemoryKinds, proto);
}

v1::MemoryPages MemoryPagesToProto(MemoryPages pages) { return ToProto(kMemoryPages, pages); }
std::optional<MemoryPages> MemoryPagesFromProto(v1::MemoryPages proto) {
  return FromProto(kMemoryPages, proto);
}

v1::DType DTypeToProto(DType dtype) { return ToProto(kDTypes, dtype); }
std::optional<DType> DTypeFromProto(v1::DType proto) { return FromProto(kDTypes, proto); }

v1::PoolContent PoolContentToProto(PoolContent content) { return ToProto(kPoolContents, content); }
std::optional<PoolContent> PoolContentFromProto(v1::PoolContent proto) {
  return FromProto(kPoolContents, proto);
}

v1::FetchOutcome FetchOutcomeToProto(FetchOutcome outcome) {
  return ToProto(kFetchOutcomePairs, outcome);
}
std::optional<FetchOutcome> FetchOutcomeFromProto(v1::FetchOutcome proto) {
  return FromProto(kFetchOutcomePairs, proto);
}

v1::Lane LaneToProto(Lane lane) { return ToProto(kLanes, lane); }
std::optional<Lane> LaneFromProto(v1::Lane proto) { return FromProto(kLanes, proto); }

void SessionToProto(SessionRef session, v1::SessionRef* out) {
  out->set_session_id(session.id.value());
  out->set_token(session.token.low());
  out->set_token_high(session.token.high());
}

SessionRef SessionFromProto(const v1::SessionRef& proto) {
  return {SessionId(proto.session_id()), SessionToken(proto.token(), proto.token_high())};
}

void NamespaceToProto(const NamespaceKey& key, v1::Namespace* out) {
  if (key.lora_id.has_value()) out->set_lora_id(*key.lora_id);
  out->set_cache_salt(key.cache_salt);
  out->set_tenant(key.tenant);
  out->set_keyed(key.keyed);
}

NamespaceKey NamespaceFromProto(const v1::Namespace& proto) {
  NamespaceKey key;
  if (proto.has_lora_id()) key.lora_id = proto.lora_id();
  key.cache_salt = proto.cache_salt();
  key.tenant = proto.tenant();
  key.keyed = proto.keyed();
  return key;
}

google::protobuf::Timestamp TimeToProto(absl::Time time) {
  const absl::Duration since_epoch = time - absl::UnixEpoch();
  // Rounds down to whole seconds, because a Timestamp's nanoseconds are not negative.
  const absl::Duration seconds = absl::Floor(since_epoch, absl::Seconds(1));
  google::protobuf::Timestamp proto;
  proto.set_seconds(absl::ToInt64Seconds(seconds));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(since_epoch - seconds)));
  return proto;
}

absl::Time TimeFromProto(const google::protobuf::Timestamp& proto) {
  return absl::FromUnixSeconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

google::protobuf::Duration DurationToProto(absl::Duration duration) {
  absl::Duration rest;
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

absl::Duration DurationFromProto(const google::protobuf::Duration& proto) {
  return absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

std::optional<uint64_t> MillisecondsOf(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return std::nullopt;
  const absl::Duration rounded = absl::Ceil(duration, absl::Milliseconds(1));
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(rounded)));
}

}  // namespace pagoda
