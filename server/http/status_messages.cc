#include "server/http/status_messages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <variant>

#include "wire/event_bytes.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

template <class Blocks, class IdOf>
void BlocksToSummary(const Blocks& blocks, IdOf id_of, v1::EventSummary* out) {
  out->set_blocks(blocks.size());
  for (size_t i = 0; i < std::min(blocks.size(), kShownBlocks); ++i) {
    out->add_block_ids(id_of(blocks[i]).value());
  }
}
constexpr auto kItself = [](BlockId id) { return id; };

// Sets the fields of each type of event.
struct SummaryWriter {
  v1::EventSummary* out;

  void operator()(const CreatedEvent& event) const {
    out->set_type(v1::EVENT_TYPE_CREATED);
    for (size_t tier = 0; tier < event.blocks_per_tier.size(); ++tier) {
      if (event.blocks_per_tier[tier] == 0) continue;
      v1::TierCapacity* const capacity = out->add_capacity();
      capacity->set_tier(TierToProto(Tier(tier)));
      capacity->set_blocks(event.blocks_per_tier[tier]);
    }
    BlocksToSummary(event.blocks, kItself, out);
  }
  void operator()(const StoredEvent& event) const {
    out->set_type(v1::EVENT_TYPE_STORED);
    BlocksToSummary(
        event.blocks, [](const StoredBlock& block) { return block.id; }, out);
    v1::StoredSummary* const stored = out->mutable_stored();
    uint64_t tokens = 0;
    for (const StoredBlock& block : event.blocks) tokens += block.token_count;
    stored->set_tokens(tokens);
    if (event.parent != kNoBlock) stored->set_parent_block_id(event.parent.value());
    NamespaceToProto(*event.name_space, stored->mutable_namespace_());
    if (event.blocks.empty()) return;
    stored->set_tier(TierToProto(event.blocks.front().tier));
    TiersToProto(event.blocks.front().lower, stored->mutable_lower_tiers());
    stored->set_priority(event.blocks.front().priority.value());
    stored->set_last_hash(event.blocks.back().hash.value());
  }
  void operator()(const UpdatedEvent& event) const {
    out->set_type(v1::EVENT_TYPE_UPDATED);
    out->set_blocks(1);
    out->add_block_ids(event.id.value());
    if (event.tier.has_value()) {
      out->mutable_tier()->set_old_value(TierToProto(event.tier->old_value));
      out->mutable_tier()->set_new_value(TierToProto(event.tier->new_value));
    }
    if (event.lower.has_value()) {
      TiersToProto(event.lower->old_value, out->mutable_lower_tiers()->mutable_old_value());
      TiersToProto(event.lower->new_value, out->mutable_lower_tiers()->mutable_new_value());
    }
    if (event.priority.has_value()) {
      out->mutable_priority()->set_old_value(event.priority->old_value.value());
      out->mutable_priority()->set_new_value(event.priority->new_value.value());
    }
    if (event.ended_pin.has_value()) {
      v1::EndedPin* const pin = out->mutable_ended_pin();
      pin->set_pin_id(event.ended_pin->pin.value());
      pin->set_why(PinEndToProto(event.ended_pin->why));
      if (event.ended_pin->removal.has_value()) {
        pin->set_removal(RemovalReasonToProto(*event.ended_pin->removal));
      }
    }
  }
  void operator()(const RemovedEvent& event) const {
    out->set_type(v1::EVENT_TYPE_REMOVED);
    out->set_reason(RemovalReasonToProto(event.reason));
    out->set_scope(RemovalScopeToProto(event.scope));
    BlocksToSummary(event.blocks, kItself, out);
  }
};

v1::SubscriberKind KindToProto(SubscriberRow::Kind kind) {
  switch (kind) {
    case SubscriberRow::Kind::kWatch:
      return v1::SUBSCRIBER_KIND_WATCH;
    case SubscriberRow::Kind::kSmg:
      return v1::SUBSCRIBER_KIND_SMG;
    case SubscriberRow::Kind::kZmq:
      return v1::SUBSCRIBER_KIND_ZMQ;
  }
  return v1::SUBSCRIBER_KIND_UNSPECIFIED;
}

v1::CallerRole RoleToProto(Role role) {
  switch (role) {
    case Role::kTenant:
      return v1::CALLER_ROLE_TENANT;
    case Role::kOperator:
      return v1::CALLER_ROLE_OPERATOR;
    case Role::kEngine:
      return v1::CALLER_ROLE_ENGINE;
  }
  return v1::CALLER_ROLE_UNSPECIFIED;
}

}  // namespace

void HistoryToProto(absl::Span<const StatusSample> samples, const CacheInfo& cache,
                    v1::StatusHistory* out) {
  *out->mutable_interval() = DurationToProto(StatusHistory::kInterval);
  for (size_t t = 0; t < cache.tiers.size(); ++t) {
    v1::TierHistory* const tier = out->add_tiers();
    tier->set_tier(TierToProto(Tier(t)));
    tier->set_name(cache.tiers[t].name);
    for (const StatusSample& sample : samples) tier->add_used_blocks(sample.used[t]);
  }
  for (const StatusSample& sample : samples) {
    *out->add_times() = TimeToProto(sample.time);
    out->add_prefix_lookup_tokens_total(sample.lookup_tokens);
    out->add_prefix_hit_tokens_total(sample.hit_tokens);
    out->add_lower_hit_tokens_total(sample.lower_hit_tokens);
    out->add_allocated_blocks_total(sample.allocated_blocks);
    out->add_evicted_blocks_total(sample.evicted_blocks);
    out->add_offloaded_blocks_total(sample.offloaded_blocks);
    out->add_onboarded_blocks_total(sample.onboarded_blocks);
    out->add_copied_bytes_total(sample.copied_bytes);
    out->add_revision(sample.events);
  }
}

void SlotsToCells(absl::Span<const SlotState> slots, uint32_t max_cells, v1::TierBlockMap* out) {
  constexpr size_t kStates = 5;
  static_assert(static_cast<size_t>(SlotState::kSpare) == kStates);
  // A spare slot can be any slot.
  const auto spares = std::count(slots.begin(), slots.end(), SlotState::kSpare);
  const size_t count = slots.size() - static_cast<size_t>(spares);
  const size_t per_cell = std::max<size_t>(1, (count + max_cells - 1) / max_cells);
  out->set_blocks_per_cell(per_cell);
  std::array<uint32_t, kStates> cell = {};
  size_t in_cell = 0;
  const auto finish = [&] {
    const auto of = [&](SlotState state) { return cell[static_cast<size_t>(state)]; };
    out->add_free_blocks(of(SlotState::kFree));
    out->add_cached_blocks(of(SlotState::kCached));
    out->add_active_blocks(of(SlotState::kActive));
    out->add_pinned_blocks(of(SlotState::kPinned));
    out->add_in_flight_blocks(of(SlotState::kInFlight));
    cell = {};
    in_cell = 0;
  };
  for (const SlotState state : slots) {
    if (state == SlotState::kSpare) continue;
    ++cell[static_cast<size_t>(state)];
    if (++in_cell == per_cell) finish();
  }
  if (in_cell != 0) finish();
}

void PrefixUseToProto(const PrefixUse& use, const TenantOptions& tenant, const CacheInfo& cache,
                      v1::PrefixUse* out) {
  out->set_hash(use.hash.value());
  out->set_tokens(use.tokens);
  out->mutable_first_tokens()->Add(use.first_tokens.begin(), use.first_tokens.end());
  out->set_first_key(use.first_key);
  out->set_tenant(tenant.name);
  NamespaceToProto(use.name_space, out->mutable_namespace_());
  out->set_hits(use.hits);
  out->set_saved_tokens(use.saved_tokens);
  out->set_tier(TierToProto(use.tier));
  out->set_tier_name(cache.TierName(use.tier));
  out->set_priority(use.priority.value());
  out->set_holders(use.holders);
  out->set_pinned(use.pinned);
}

void EventToSummary(const Event& event, const TenantTable& tenants, v1::EventSummary* out) {
  out->set_revision(event.revision.value());
  *out->mutable_time() = TimeToProto(event.time);
  out->set_window_size(WindowToProto(event.window));
  out->set_tenant(tenants[event.tenant].name);
  std::visit(SummaryWriter{out}, event.what);
}

void SubscriberRowToProto(const SubscriberRow& row, const TenantTable& tenants, Revision last,
                          v1::SubscriberInfo* out) {
  out->set_kind(KindToProto(row.kind));
  out->set_role(RoleToProto(row.caller.role));
  out->set_tenant(tenants[row.caller.tenant].name);
  *out->mutable_open_time() = TimeToProto(row.opened);
  out->set_sent_revision(row.sent.value());
  // The stream can be ahead of `last`, which was read earlier.
  out->set_lag_events(last.value() - std::min(last.value(), row.sent.value()));
  out->set_snapshot(row.snapshot);
  out->set_filtered(row.filtered);
  out->set_writing(row.writing);
}

}  // namespace pagoda::server
