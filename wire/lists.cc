#include "wire/lists.h"

#include "wire/vocabulary.h"

namespace pagoda {

void SessionRowToProto(const SessionRow& row, v1::SessionInfo* out) {
  out->set_session_id(row.session.value());
  out->set_client_name(row.client_name);
  *out->mutable_open_time() = TimeToProto(row.opened);
  if (row.lease != absl::InfiniteDuration()) {
    *out->mutable_lease() = DurationToProto(row.lease);
    if (row.lease_left.has_value()) *out->mutable_lease_left() = DurationToProto(*row.lease_left);
  }
  out->set_streams(row.streams);
  out->set_sequences(row.sequences);
  out->set_raw_blocks(row.raw_blocks);
  out->set_deferred_blocks(row.deferred_blocks);
  out->set_step(row.step);
  out->set_completed_step(row.completed_step);
}

void SequenceRowToProto(const SequenceRow& row, v1::SequenceInfo* out) {
  out->set_session_id(row.session.value());
  out->set_sequence_id(row.sequence.value());
  out->set_client_name(row.client_name);
  out->set_token_count(row.token_count);
  out->set_computed_tokens(row.computed_tokens);
  out->set_reserved_tokens(row.reserved_tokens);
  out->set_matched_tokens(row.matched_tokens);
  out->set_blocks(row.blocks);
  out->set_losses(row.losses);
}

void TenantUsageToProto(const TenantUsage& usage, const TenantOptions& tenant,
                        const CacheInfo& cache, v1::TenantInfo* out) {
  out->set_name(tenant.name);
  out->set_shares(tenant.shares);
  out->set_share(tenant.share);
  out->set_sessions(usage.sessions);
  out->set_sequences(usage.sequences);
  out->set_max_sequences(usage.max_sequences);
  out->set_sequence_bytes(usage.sequence_bytes);
  out->set_max_sequence_bytes(usage.max_sequence_bytes);
  for (const TenantUsage::Use& use : usage.uses) {
    v1::TenantUse* proto = out->add_use();
    proto->set_window_size(WindowToProto(use.window));
    proto->set_tier(TierToProto(use.tier));
    proto->set_tier_name(cache.TierName(use.tier));
    proto->set_used_blocks(use.used_blocks);
    proto->set_cached_blocks(use.cached_blocks);
    if (use.quota_blocks != kNoQuota) proto->set_quota_blocks(use.quota_blocks);
  }
}

void InspectedPrefixToProto(const InspectedPrefix& prefix, const CacheInfo& cache,
                            v1::InspectPrefixResponse* out) {
  out->set_matched_tokens(prefix.matched_tokens);
  for (const InspectedBlock& block : prefix.blocks) {
    v1::InspectedBlock* proto = out->add_blocks();
    proto->set_window_size(WindowToProto(block.window));
    proto->set_token_start(block.token_start);
    proto->set_token_count(block.token_count);
    proto->mutable_block()->set_block_id(block.block.id.value());
    proto->mutable_block()->set_generation(block.block.generation.value());
    proto->mutable_block()->set_slot_index(block.block.slot.value());
    proto->set_tier(TierToProto(block.tier));
    proto->set_tier_name(cache.TierName(block.tier));
    TiersToProto(block.lower, proto->mutable_lower_tiers());
    proto->set_hash(block.hash.value());
    proto->set_priority(block.priority.value());
    proto->set_holders(block.holders);
    proto->set_pinned(block.pinned);
  }
}

}  // namespace pagoda
