#include "tests/wire/event_messages.h"

#include <algorithm>
#include <bit>
#include <string>
#include <variant>

#include "absl/types/span.h"
#include "base/check.h"
#include "events/client_key.h"
#include "wire/event_bytes.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

void ExtrasToProto(absl::Span<const TokenExtra> extras, v1::StoredBlock* out) {
  static_assert(std::endian::native == std::endian::little, "a digest's words are its bytes");
  const auto has_id = [](const TokenExtra& extra) { return extra.extra_id != 0; };
  if (std::any_of(extras.begin(), extras.end(), has_id)) {
    for (const TokenExtra& extra : extras) out->add_extra_token_ids(extra.extra_id);
  }
  for (const MultimodalItem& item : ItemsOf(extras)) {
    v1::MultimodalItem* proto = out->add_multimodal_items();
    proto->set_digest(item.digest.data(), sizeof(item.digest));
    proto->set_token_start(item.token_start);
    proto->set_token_count(item.token_count);
    proto->set_item_offset(item.item_offset);
  }
}

// Fills the member of the wire's oneof that belongs to each event.
struct EventWriter {
  v1::Event* out;

  void operator()(const CreatedEvent& event) const {
    v1::CreatedEvent* proto = out->mutable_created();
    for (size_t tier = 0; tier < event.blocks_per_tier.size(); ++tier) {
      if (event.blocks_per_tier[tier] == 0) continue;
      v1::TierCapacity* capacity = proto->add_capacity();
      capacity->set_tier(TierToProto(Tier(tier)));
      capacity->set_blocks(event.blocks_per_tier[tier]);
    }
    for (const BlockId block : event.blocks) proto->add_block_ids(block.value());
  }

  void operator()(const StoredEvent& event) const {
    v1::StoredEvent* proto = out->mutable_stored();
    if (event.parent_hash.has_value()) proto->set_parent_hash(event.parent_hash->value());
    if (event.parent != kNoBlock) proto->set_parent_block_id(event.parent.value());
    if (!event.hashes_only) NamespaceToProto(*event.name_space, proto->mutable_namespace_());
    proto->mutable_blocks()->Reserve(static_cast<int>(event.blocks.size()));
    proto->set_content_hidden(event.content_hidden);
    size_t begin = 0;
    for (const StoredBlock& block : event.blocks) {
      v1::StoredBlock* stored = proto->add_blocks();
      if (block.id != kNoBlock) stored->set_block_id(block.id.value());
      stored->set_block_hash(block.hash.value());
      stored->set_tier(TierToProto(block.tier));
      stored->set_priority(block.priority.value());
      TiersToProto(block.lower, stored->mutable_lower_tiers());
      if (event.hashes_only) continue;
      if (event.content_hidden || event.keyed()) stored->set_token_count(block.token_count);
      if (event.content_hidden) continue;
      const BlockKey key = event.KeyAt(begin, block);
      begin += key.tokens.size();
      if (key.keyed) {
        stored->set_key(std::string(ClientKeyBytes(key)));
        continue;
      }
      stored->mutable_tokens()->Add(key.tokens.begin(), key.tokens.end());
      if (key.has_extras()) ExtrasToProto(key.extras, stored);
    }
  }

  void operator()(const UpdatedEvent& event) const {
    v1::UpdatedEvent* proto = out->mutable_updated();
    if (event.id != kNoBlock) proto->set_block_id(event.id.value());
    proto->set_block_hash(event.hash.value());
    if (event.tier.has_value()) {
      proto->mutable_tier()->set_old_value(TierToProto(event.tier->old_value));
      proto->mutable_tier()->set_new_value(TierToProto(event.tier->new_value));
    }
    if (event.lower.has_value()) {
      v1::LowerTiersChange* lower = proto->mutable_lower_tiers();
      TiersToProto(event.lower->old_value, lower->mutable_old_value());
      TiersToProto(event.lower->new_value, lower->mutable_new_value());
    }
    if (event.priority.has_value()) {
      proto->mutable_priority()->set_old_value(event.priority->old_value.value());
      proto->mutable_priority()->set_new_value(event.priority->new_value.value());
    }
    if (event.ended_pin.has_value()) {
      v1::EndedPin* pin = proto->mutable_ended_pin();
      pin->set_pin_id(event.ended_pin->pin.value());
      pin->set_why(PinEndToProto(event.ended_pin->why));
      if (event.ended_pin->removal.has_value()) {
        pin->set_removal(RemovalReasonToProto(*event.ended_pin->removal));
      }
    }
  }

  void operator()(const RemovedEvent& event) const {
    v1::RemovedEvent* proto = out->mutable_removed();
    proto->set_reason(RemovalReasonToProto(event.reason));
    proto->mutable_block_ids()->Reserve(static_cast<int>(event.blocks.size()));
    proto->mutable_block_hashes()->Reserve(static_cast<int>(event.hashes.size()));
    for (const BlockId block : event.blocks) proto->add_block_ids(block.value());
    for (const BlockHash hash : event.hashes) proto->add_block_hashes(hash.value());
    proto->set_scope(RemovalScopeToProto(event.scope));
  }
};

}  // namespace

void EventToProto(const Event& event, v1::Event* out) {
  out->set_revision(event.revision.value());
  *out->mutable_time() = TimeToProto(event.time);
  out->set_window_size(WindowToProto(event.window));
  std::visit(EventWriter{out}, event.what);
}

v1::Event DecodedEvent(const Event& event) {
  std::string bytes;
  AppendEncoded(event, &bytes);
  v1::WatchResponse message;
  PAGODA_CHECK(message.ParseFromString(bytes) && message.events_size() == 1,
               "an encoded event is one element of the message");
  return message.events(0);
}

}  // namespace pagoda
