#include "tests/sim/words/digest.h"

#include <variant>

namespace pagoda::sim {

void Digest::Add(std::string_view bytes) {
  Add(bytes.size());
  for (const char c : bytes) Add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
}

void Digest::AddExtra(const TokenExtra& extra) {
  Add(extra.extra_id);
  for (const uint64_t word : extra.digest) Add(word);
  Add(uint64_t{extra.item_offset} << 1 | (extra.in_item ? 1 : 0));
}

void Digest::Add(const Event& event) {
  Add(event.revision.value());
  Add(static_cast<uint64_t>(absl::ToUnixNanos(event.time)));
  Add(event.window.value());
  Add(event.what.index());
  if (const auto* created = std::get_if<CreatedEvent>(&event.what)) {
    Add(created->blocks_per_tier.size());
    for (const uint32_t blocks : created->blocks_per_tier) Add(blocks);
    for (const BlockId id : created->blocks) Add(id.value());
  } else if (const auto* stored = std::get_if<StoredEvent>(&event.what)) {
    Add(stored->parent_hash.has_value() ? stored->parent_hash->value() : 1);
    Add(stored->parent.value());
    Add(stored->name_space->lora_id.has_value() ? *stored->name_space->lora_id + 1 : 0);
    Add(stored->name_space->cache_salt);
    Add(stored->name_space->tenant);
    if (stored->keyed()) Add(3);
    Add(stored->blocks.size());
    for (const StoredBlock& block : stored->blocks) {
      Add(block.id.value());
      Add(block.hash.value());
      Add(uint64_t{block.token_count} << 16 | block.tier.value() << 8 | block.priority.value());
      if (!block.lower.empty()) Add(block.lower.bits());
    }
    for (const TokenId token : stored->tokens) Add(token);
    Add(stored->extras.size());
    for (const TokenExtra& extra : stored->extras) AddExtra(extra);
  } else if (const auto* updated = std::get_if<UpdatedEvent>(&event.what)) {
    Add(updated->id.value());
    Add(updated->hash.value());
    if (updated->tier.has_value()) Add(2 + updated->tier->new_value.value());
    if (updated->lower.has_value()) {
      Add(uint64_t{1} << 32 | uint64_t{updated->lower->old_value.bits()} << 8 |
          updated->lower->new_value.bits());
    }
    if (updated->priority.has_value()) {
      Add(uint64_t{updated->priority->old_value.value()} << 8 |
          updated->priority->new_value.value());
    }
    if (updated->ended_pin.has_value()) {
      Add(updated->ended_pin->pin.value());
      Add(static_cast<uint64_t>(updated->ended_pin->why));
    }
  } else if (const auto* removed = std::get_if<RemovedEvent>(&event.what)) {
    Add(static_cast<uint64_t>(removed->reason) << 8 | static_cast<uint64_t>(removed->scope));
    for (const BlockId id : removed->blocks) Add(id.value());
    for (const BlockHash hash : removed->hashes) Add(hash.value());
  }
}

void Digest::Add(const Order& order) {
  Add(static_cast<uint64_t>(order.lane) << 8 | static_cast<uint64_t>(order.kind));
  Add(order.ticket.value());
  Add(order.window_index);
  for (const SlotRef& slot : {order.source, order.target}) {
    Add(uint64_t{slot.tier.value()} << 32 | slot.slot.value());
  }
  Add(order.num_tokens);
  for (const Ticket ticket : order.after) Add(ticket.value());
  Add(order.parent.value());
  for (const SlotIndex slot : order.slots) Add(slot.value());
}

}  // namespace pagoda::sim
