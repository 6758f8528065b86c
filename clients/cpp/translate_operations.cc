#include "clients/cpp/translate_operations.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "clients/cpp/translate.h"

namespace pagoda {
namespace {

void SetNamespace(const NamespaceKey& key, v1::Namespace* out) {
  if (key.lora_id.has_value()) out->set_lora_id(*key.lora_id);
  out->set_cache_salt(key.cache_salt);
  out->set_tenant(key.tenant);
}

template <class Proto>
void SetTokens(const std::vector<TokenId>& tokens, Proto* out) {
  out->mutable_tokens()->Add(tokens.begin(), tokens.end());
}

template <class Proto>
void SetExtraIds(const std::vector<uint64_t>& ids, Proto* out) {
  out->mutable_extra_token_ids()->Add(ids.begin(), ids.end());
}

std::string DigestBytes(const ItemDigest& digest) {
  std::string bytes(sizeof(ItemDigest), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(digest[i / 8] >> (i % 8 * 8) & 0xFF);
  }
  return bytes;
}

template <class Proto>
void SetItems(const std::vector<MultimodalItem>& items, Proto* out) {
  for (const MultimodalItem& item : items) {
    v1::MultimodalItem* proto = out->add_multimodal_items();
    proto->set_digest(DigestBytes(item.digest));
    proto->set_token_start(item.token_start);
    proto->set_token_count(item.token_count);
    proto->set_item_offset(item.item_offset);
  }
}

// All that names a prefix.
template <class Prefix, class Proto>
void SetPrefix(const Prefix& op, Proto* out) {
  SetNamespace(op.name_space, out->mutable_namespace_());
  SetTokens(op.tokens, out);
  SetExtraIds(op.extra_token_ids, out);
  SetItems(op.multimodal_items, out);
}

// The wire counts whole milliseconds. A positive duration stays positive; one that is not is sent
// as 0, for the daemon to refuse. Infinity is no field at all.
std::optional<uint64_t> MillisecondsOf(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return std::nullopt;
  const absl::Duration rounded = absl::Ceil(duration, absl::Milliseconds(1));
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Milliseconds(rounded)));
}

template <class Proto>
void SetRanges(const std::vector<RetentionRange>& ranges, Proto* out) {
  for (const RetentionRange& range : ranges) {
    v1::RetentionRange* proto = out->add_retention();
    proto->set_token_start(range.token_start);
    if (range.token_end.has_value()) proto->set_token_end(*range.token_end);
    proto->set_priority(range.retention.priority.value());
    if (const auto duration_ms = MillisecondsOf(range.retention.duration)) {
      proto->set_duration_ms(*duration_ms);
    }
  }
}

v1::Lane LaneToProto(Lane lane) {
  switch (lane) {
    case Lane::kMemory:
      return v1::LANE_MEMORY;
    case Lane::kFetch:
      return v1::LANE_FETCH;
    case Lane::kBackup:
      return v1::LANE_BACKUP;
  }
  return v1::LANE_MEMORY;
}

void SetGenerated(const BlockRetention& generated, v1::AddSequenceRequest* out) {
  out->set_generated_priority(generated.priority.value());
  if (const auto duration_ms = MillisecondsOf(generated.duration)) {
    out->set_generated_duration_ms(*duration_ms);
  }
}

// Fills the member of the wire's oneof that goes with each operation.
struct OperationWriter {
  v1::Operation* out;

  void operator()(const AllocateBlocks& op) const {
    v1::AllocateBlocksRequest* request = out->mutable_allocate_blocks();
    request->set_window_size(WindowToProto(op.window));
    request->set_count(op.count);
  }
  void operator()(const FreeBlocks& op) const {
    v1::FreeBlocksRequest* request = out->mutable_free_blocks();
    request->set_window_size(WindowToProto(op.window));
    for (const BlockRef& block : op.blocks) {
      v1::BlockRef* ref = request->add_blocks();
      ref->set_block_id(block.id.value());
      ref->set_generation(block.generation.value());
    }
  }
  void operator()(const AddSequence& op) const {
    v1::AddSequenceRequest* request = out->mutable_add_sequence();
    request->set_sequence_id(op.sequence.value());
    SetPrefix(op, request);
    request->set_room_tokens(op.room_tokens);
    SetRanges(op.retention.ranges, request);
    if (op.retention.generated.has_value()) SetGenerated(*op.retention.generated, request);
    request->set_tenant(op.tenant);
  }
  void operator()(const ReserveTokens& op) const {
    v1::ReserveTokensRequest* request = out->mutable_reserve_tokens();
    request->set_sequence_id(op.sequence.value());
    request->set_count(op.count);
  }
  void operator()(const CommitTokens& op) const {
    v1::CommitTokensRequest* request = out->mutable_commit_tokens();
    request->set_sequence_id(op.sequence.value());
    SetTokens(op.tokens, request);
    request->set_computed_tokens(op.computed_tokens);
    request->set_known_losses(op.known_losses);
  }
  void operator()(const AppendTokens& op) const {
    v1::AppendTokensRequest* request = out->mutable_append_tokens();
    request->set_sequence_id(op.sequence.value());
    SetTokens(op.tokens, request);
    request->set_computed_tokens(op.computed_tokens);
    request->set_known_losses(op.known_losses);
  }
  void operator()(const FreeSequence& op) const {
    out->mutable_free_sequence()->set_sequence_id(op.sequence.value());
  }
  void operator()(const MatchPrefix& op) const { SetPrefix(op, out->mutable_match_prefix()); }
  void operator()(const DescribePools&) const { out->mutable_describe_pools(); }
  void operator()(const DescribeSequence& op) const {
    out->mutable_describe_sequence()->set_sequence_id(op.sequence.value());
  }
  void operator()(const ForkSequence& op) const {
    v1::ForkSequenceRequest* request = out->mutable_fork_sequence();
    request->set_sequence_id(op.sequence.value());
    request->set_new_sequence_id(op.new_sequence.value());
  }
  void operator()(const TruncateSequence& op) const {
    v1::TruncateSequenceRequest* request = out->mutable_truncate_sequence();
    request->set_sequence_id(op.sequence.value());
    request->set_token_count(op.token_count);
  }
  void operator()(const QueryCapacity& op) const {
    v1::QueryCapacityRequest* request = out->mutable_query_capacity();
    request->set_sequence_id(op.sequence.value());
    SetPrefix(op, request);
    request->set_max_new_tokens(op.max_new_tokens);
    request->set_tenant(op.tenant);
  }
  void operator()(const OffloadPrefix& op) const { SetPrefix(op, out->mutable_offload_prefix()); }
  // Defaults are left out: an older daemon refuses fields that it does not know.
  void operator()(const PrefetchPrefix& op) const {
    v1::PrefetchPrefixRequest* request = out->mutable_prefetch_prefix();
    SetPrefix(op, request);
    if (op.target == PrefetchTarget::kMemory) {
      request->set_target(v1::PREFETCH_TARGET_MEMORY);
    }
    if (const auto deadline_ms = MillisecondsOf(op.deadline)) {
      request->set_deadline_ms(*deadline_ms);
    }
  }
  void operator()(const PinPrefix& op) const {
    v1::PinPrefixRequest* request = out->mutable_pin_prefix();
    SetPrefix(op, request);
    if (const auto lease_ms = MillisecondsOf(op.lease)) request->set_lease_ms(*lease_ms);
  }
  void operator()(const UnpinPrefix& op) const {
    out->mutable_unpin_prefix()->set_pin_id(op.pin.value());
  }
  void operator()(const ListPins&) const { out->mutable_list_pins(); }
  void operator()(const InvalidatePrefix& op) const {
    SetPrefix(op, out->mutable_invalidate_prefix());
  }
  // A prefix is all prompt: what the retention says of generated tokens names nothing.
  void operator()(const SetRetention& op) const {
    v1::SetRetentionRequest* request = out->mutable_set_retention();
    SetPrefix(op, request);
    SetRanges(op.retention.ranges, request);
  }
  void operator()(const WaitForTicket& op) const {
    v1::WaitForTicketRequest* request = out->mutable_wait_for_ticket();
    request->set_ticket(op.ticket.value());
    request->set_lane(LaneToProto(op.lane));
  }
};

}  // namespace

v1::InspectPrefixRequest InspectRequestOf(const MatchPrefix& prompt) {
  v1::InspectPrefixRequest request;
  SetPrefix(prompt, &request);
  return request;
}

v1::Operation OperationToProto(const Operation& operation) {
  v1::Operation proto;
  std::visit(OperationWriter{&proto}, operation);
  return proto;
}

v1::Batch BatchToProto(absl::Span<const Operation> operations, StepRange steps) {
  v1::Batch batch;
  batch.set_step(steps.step);
  batch.set_completed_step(steps.completed_step);
  batch.mutable_operations()->Reserve(static_cast<int>(operations.size()));
  for (const Operation& operation : operations) {
    std::visit(OperationWriter{batch.add_operations()}, operation);
  }
  return batch;
}

}  // namespace pagoda
