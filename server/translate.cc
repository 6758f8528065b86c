#include "server/translate.h"

namespace pagoda::server {

uint32_t WindowToProto(WindowSize window) { return window == kFullAttention ? 0 : window.value(); }

WindowSize WindowFromProto(uint32_t window_size) {
  return window_size == 0 ? kFullAttention : WindowSize(window_size);
}

v1::MemoryKind MemoryKindToProto(MemoryKind kind) {
  return kind == MemoryKind::kHost ? v1::MEMORY_KIND_HOST : v1::MEMORY_KIND_CUDA;
}

v1::Tier TierToProto(Tier tier) {
  return static_cast<v1::Tier>(static_cast<int>(tier) + v1::TIER_PRIMARY);
}

void TiersToProto(TierSet tiers, google::protobuf::RepeatedField<int>* out) {
  tiers.ForEach([out](Tier tier) { out->Add(TierToProto(tier)); });
}

v1::Medium MediumToProto(Medium medium) {
  switch (medium) {
    case Medium::kGpu:
      return v1::MEDIUM_GPU;
    case Medium::kHost:
      return v1::MEDIUM_HOST;
    case Medium::kDisk:
      return v1::MEDIUM_DISK;
  }
  return v1::MEDIUM_UNSPECIFIED;
}

SessionRef SessionFromProto(const v1::SessionRef& proto) {
  return {SessionId(proto.session_id()), SessionToken(proto.token(), proto.token_high())};
}

void SessionToProto(SessionRef session, v1::SessionRef* out) {
  out->set_session_id(session.id.value());
  out->set_token(session.token.low());
  out->set_token_high(session.token.high());
}

NamespaceKey NamespaceFromProto(const v1::Namespace& proto) {
  NamespaceKey key;
  if (proto.has_lora_id()) key.lora_id = proto.lora_id();
  key.cache_salt = proto.cache_salt();
  key.tenant = proto.tenant();
  return key;
}

void NamespaceToProto(const NamespaceKey& key, v1::Namespace* out) {
  if (key.lora_id.has_value()) out->set_lora_id(*key.lora_id);
  out->set_cache_salt(key.cache_salt);
  out->set_tenant(key.tenant);
}

void CacheInfoToProto(const CacheInfo& info, v1::CacheInfo* out) {
  out->set_name(info.name);
  out->set_model_fingerprint(info.model_fingerprint);
  out->set_rank(info.rank);
  out->set_tokens_per_block(info.tokens_per_block);
  for (size_t t = 0; t < info.tiers.size(); ++t) {
    v1::TierInfo* proto = out->add_tiers();
    proto->set_tier(TierToProto(static_cast<Tier>(t)));
    proto->set_name(info.tiers[t].name);
    proto->set_medium(MediumToProto(info.tiers[t].medium));
  }
  for (const CacheInfo::Window& window : info.windows) {
    v1::WindowInfo* proto = out->add_windows();
    proto->set_window_size(WindowToProto(window.window));
    proto->set_primary_blocks(window.blocks_in(Tier::kPrimary));
    proto->set_secondary_blocks(window.blocks_in(Tier::kSecondary));
    for (const uint32_t blocks : window.blocks) proto->add_blocks(blocks);
  }
}

google::protobuf::Timestamp TimeToProto(absl::Time time) {
  const absl::Duration since_epoch = time - absl::UnixEpoch();
  // Whole seconds rounded down, so that the rest is not negative, as Timestamp wants it.
  const absl::Duration seconds = absl::Floor(since_epoch, absl::Seconds(1));
  google::protobuf::Timestamp proto;
  proto.set_seconds(absl::ToInt64Seconds(seconds));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(since_epoch - seconds)));
  return proto;
}

google::protobuf::Duration DurationToProto(absl::Duration duration) {
  absl::Duration rest;
  google::protobuf::Duration proto;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

}  // namespace pagoda::server
