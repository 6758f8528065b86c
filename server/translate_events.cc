#include "server/translate_events.h"

#include <variant>

#include "server/translate.h"

namespace pagoda::server {
namespace {

v1::RemovalReason RemovalReasonToProto(RemovalReason reason) {
  switch (reason) {
    case RemovalReason::kEvicted:
      return v1::REMOVAL_REASON_EVICTED;
    case RemovalReason::kDisplaced:
      return v1::REMOVAL_REASON_DISPLACED;
    case RemovalReason::kTakenOver:
      return v1::REMOVAL_REASON_TAKEN_OVER;
    case RemovalReason::kTruncated:
      return v1::REMOVAL_REASON_TRUNCATED;
    case RemovalReason::kInvalidated:
      return v1::REMOVAL_REASON_INVALIDATED;
    case RemovalReason::kCleared:
      return v1::REMOVAL_REASON_CLEARED;
    case RemovalReason::kExpired:
      return v1::REMOVAL_REASON_EXPIRED;
    case RemovalReason::kReleased:
      return v1::REMOVAL_REASON_RELEASED;
  }
  return v1::REMOVAL_REASON_UNSPECIFIED;
}

// Fills the member of the wire's oneof that goes with each event.
struct EventWriter {
  v1::Event* out;

  void operator()(const CreatedEvent& event) const {
    v1::CreatedEvent* proto = out->mutable_created();
    for (size_t tier = 0; tier < event.blocks_per_tier.size(); ++tier) {
      if (event.blocks_per_tier[tier] == 0) continue;
      v1::TierCapacity* capacity = proto->add_capacity();
      capacity->set_tier(TierToProto(static_cast<Tier>(tier)));
      capacity->set_blocks(event.blocks_per_tier[tier]);
    }
    for (const BlockId block : event.blocks) proto->add_block_ids(block.value());
  }

  void operator()(const StoredEvent& event) const {
    v1::StoredEvent* proto = out->mutable_stored();
    if (event.parent_hash.has_value()) proto->set_parent_hash(event.parent_hash->value());
    if (event.parent != kNoBlock) proto->set_parent_block_id(event.parent.value());
    NamespaceToProto(event.name_space, proto->mutable_namespace_());
    auto tokens = event.tokens.begin();
    for (const StoredBlock& block : event.blocks) {
      v1::StoredBlock* stored = proto->add_blocks();
      stored->set_block_id(block.id.value());
      stored->set_block_hash(block.hash.value());
      stored->mutable_tokens()->Add(tokens, tokens + block.token_count);
      tokens += block.token_count;
      stored->set_tier(TierToProto(block.tier));
      stored->set_priority(block.priority.value());
    }
  }

  void operator()(const UpdatedEvent& event) const {
    v1::UpdatedEvent* proto = out->mutable_updated();
    proto->set_block_id(event.id.value());
    proto->set_block_hash(event.hash.value());
    if (event.tier.has_value()) {
      proto->mutable_tier()->set_old_value(TierToProto(event.tier->old_value));
      proto->mutable_tier()->set_new_value(TierToProto(event.tier->new_value));
    }
    if (event.priority.has_value()) {
      proto->mutable_priority()->set_old_value(event.priority->old_value.value());
      proto->mutable_priority()->set_new_value(event.priority->new_value.value());
    }
  }

  void operator()(const RemovedEvent& event) const {
    v1::RemovedEvent* proto = out->mutable_removed();
    proto->set_reason(RemovalReasonToProto(event.reason));
    for (const BlockId block : event.blocks) proto->add_block_ids(block.value());
    for (const BlockHash hash : event.hashes) proto->add_block_hashes(hash.value());
    if (event.scope == RemovedEvent::Scope::kWindow) {
      proto->set_scope(v1::REMOVAL_SCOPE_WINDOW);
    }
  }
};

}  // namespace

void EventToProto(const Event& event, v1::Event* out) {
  out->set_revision(event.revision.value());
  *out->mutable_time() = TimeToProto(event.time);
  out->set_window_size(WindowToProto(event.window));
  std::visit(EventWriter{out}, event.what);
}

}  // namespace pagoda::server
