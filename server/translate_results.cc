#include "server/translate_results.h"

#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "server/error_map.h"
#include "server/translate.h"

namespace pagoda::server {
namespace {

void AddBlocks(const std::vector<BlockHandle>& blocks,
               google::protobuf::RepeatedPtrField<v1::BlockHandle>* out) {
  out->Reserve(static_cast<int>(blocks.size()));
  for (const BlockHandle& block : blocks) {
    v1::BlockHandle* handle = out->Add();
    handle->set_block_id(block.id.value());
    handle->set_generation(block.generation.value());
    handle->set_slot_index(block.slot.value());
  }
}

void AddTables(const std::vector<BlockTable>& tables,
               google::protobuf::RepeatedPtrField<v1::BlockTable>* out) {
  for (const BlockTable& table : tables) {
    v1::BlockTable* proto = out->Add();
    proto->set_window_size(WindowToProto(table.window));
    proto->set_first_block(table.first_block);
    AddBlocks(table.blocks, proto->mutable_blocks());
  }
}

v1::DType DTypeToProto(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return v1::DTYPE_FLOAT32;
    case DType::kFloat16:
      return v1::DTYPE_FLOAT16;
    case DType::kBFloat16:
      return v1::DTYPE_BFLOAT16;
  }
  return v1::DTYPE_UNSPECIFIED;
}

void SegmentToProto(const MappingSegment& segment, v1::MappingSegment* out) {
  out->set_shm_name(segment.shm_name);
  out->set_offset_bytes(segment.offset_bytes);
  out->set_size_bytes(segment.size_bytes);
  out->set_first_slot(segment.first_slot);
  out->set_num_slots(segment.num_slots);
  out->set_shard(segment.shard);
  out->set_memory_kind(MemoryKindToProto(segment.place.kind));
  if (segment.place.kind == MemoryKind::kHost) return;
  out->set_device(static_cast<uint32_t>(segment.place.device));
  out->set_device_uuid(segment.place.uuid.data(), segment.place.uuid.size());
}

void PinToProto(const PinInfo& pin, v1::PinInfo* out) {
  out->set_pin_id(pin.pin.value());
  out->set_client_name(pin.client_name);
  NamespaceToProto(pin.name_space, out->mutable_namespace_());
  out->set_pinned_tokens(pin.pinned_tokens);
  out->set_blocks(pin.blocks);
  if (pin.expires != absl::InfiniteFuture()) {
    *out->mutable_expire_time() = TimeToProto(pin.expires);
  }
  out->set_tenant(pin.tenant);
}

// Fills the member of the wire's oneof that goes with each result.
struct ResultWriter {
  v1::OperationResult* out;

  void operator()(const AllocatedBlocks& result) const {
    v1::AllocateBlocksResult* proto = out->mutable_allocate_blocks();
    AddBlocks(result.blocks, proto->mutable_blocks());
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const FreedBlocks&) const { out->mutable_free_blocks(); }
  void operator()(const AddedSequence& result) const {
    v1::AddSequenceResult* proto = out->mutable_add_sequence();
    proto->set_matched_tokens(result.matched_tokens);
    proto->set_matched_secondary_tokens(result.matched_secondary_tokens);
    proto->set_matched_below_tokens(result.matched_below_tokens);
    AddTables(result.tables, proto->mutable_tables());
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const ReservedTokens& result) const {
    v1::ReserveTokensResult* proto = out->mutable_reserve_tokens();
    AddTables(result.added, proto->mutable_added());
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const CommittedTokens& result) const {
    out->mutable_commit_tokens()->set_token_count(result.token_count);
  }
  void operator()(const AppendedTokens& result) const {
    v1::AppendTokensResult* proto = out->mutable_append_tokens();
    AddTables(result.added, proto->mutable_added());
    proto->set_token_count(result.token_count);
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const FreedSequence&) const { out->mutable_free_sequence(); }
  void operator()(const MatchedPrefix& result) const {
    v1::MatchPrefixResult* proto = out->mutable_match_prefix();
    proto->set_matched_tokens(result.matched_tokens);
    AddBlocks(result.blocks, proto->mutable_blocks());
    proto->set_cached_tokens(result.cached_tokens);
    proto->mutable_tokens_by_tier()->Add(result.tokens_by_tier.begin(),
                                         result.tokens_by_tier.end());
  }
  void operator()(const DescribedPools& result) const {
    v1::DescribePoolsResult* proto = out->mutable_describe_pools();
    for (const PoolMapping& mapping : result.pools) PoolMappingToProto(mapping, proto->add_pools());
  }
  void operator()(const DescribedSequence& result) const {
    v1::DescribeSequenceResult* proto = out->mutable_describe_sequence();
    proto->set_token_count(result.token_count);
    proto->set_computed_tokens(result.computed_tokens);
    proto->set_room_tokens(result.room_tokens);
    proto->set_losses(result.losses);
    AddTables(result.tables, proto->mutable_tables());
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const ForkedSequence& result) const {
    v1::ForkSequenceResult* proto = out->mutable_fork_sequence();
    proto->set_token_count(result.token_count);
    proto->set_computed_tokens(result.computed_tokens);
    proto->set_losses(result.losses);
    AddTables(result.tables, proto->mutable_tables());
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const TruncatedSequence& result) const {
    v1::TruncateSequenceResult* proto = out->mutable_truncate_sequence();
    proto->set_token_count(result.token_count);
    proto->set_computed_tokens(result.computed_tokens);
    AddTables(result.tables, proto->mutable_tables());
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const CapacityAnswer& result) const {
    v1::QueryCapacityResult* proto = out->mutable_query_capacity();
    proto->set_matched_tokens(result.matched_tokens);
    for (const WindowCapacity& window : result.windows) {
      v1::WindowCapacity* added = proto->add_windows();
      added->set_window_size(WindowToProto(window.window));
      added->set_blocks_now(window.blocks_now);
      added->set_blocks_to_completion(window.blocks_to_completion);
      added->set_available_blocks(window.available_blocks);
      if (window.quota_blocks.has_value()) added->set_quota_blocks(*window.quota_blocks);
      if (window.quota_left_blocks.has_value()) {
        added->set_quota_left_blocks(*window.quota_left_blocks);
      }
    }
  }
  void operator()(const OffloadedPrefix& result) const {
    v1::OffloadPrefixResult* proto = out->mutable_offload_prefix();
    proto->set_blocks(result.blocks);
    proto->set_ready_ticket(result.ready.value());
  }
  void operator()(const PrefetchedPrefix& result) const {
    v1::PrefetchPrefixResult* proto = out->mutable_prefetch_prefix();
    proto->set_matched_tokens(result.matched_tokens);
    proto->set_blocks(result.blocks);
    proto->set_ready_ticket(result.ready.value());
    proto->set_fetched_blocks(result.fetched_blocks);
    proto->set_fetch_ticket(result.fetch.value());
  }
  void operator()(const PinnedPrefix& result) const {
    v1::PinPrefixResult* proto = out->mutable_pin_prefix();
    proto->set_pin_id(result.pin.value());
    proto->set_pinned_tokens(result.pinned_tokens);
    proto->set_blocks(result.blocks);
  }
  void operator()(const UnpinnedPrefix&) const { out->mutable_unpin_prefix(); }
  void operator()(const ListedPins& result) const {
    v1::ListPinsResult* proto = out->mutable_list_pins();
    for (const PinInfo& pin : result.pins) PinToProto(pin, proto->add_pins());
    proto->set_pinned_blocks(result.pinned_blocks);
    proto->set_budget_blocks(result.budget_blocks);
  }
  void operator()(const InvalidatedPrefix& result) const {
    v1::InvalidatePrefixResult* proto = out->mutable_invalidate_prefix();
    proto->set_removed_blocks(result.removed_blocks);
    proto->set_durable_ticket(result.durable.value());
  }
  void operator()(const RetentionSet& result) const {
    out->mutable_set_retention()->set_blocks(result.blocks);
  }
  void operator()(const WaitedForTicket& result) const {
    out->mutable_wait_for_ticket()->set_completed_ticket(result.completed.value());
  }
};

}  // namespace

void PoolMappingToProto(const PoolMapping& mapping, v1::PoolMapping* out) {
  const PoolLayout& layout = mapping.layout;
  out->set_window_size(WindowToProto(mapping.window));
  out->set_pool_index(mapping.pool_index);
  out->set_tier(TierToProto(mapping.tier));
  out->set_dtype(DTypeToProto(layout.dtype));
  out->mutable_layers()->Add(layout.layers.begin(), layout.layers.end());
  out->set_num_slots(mapping.num_slots);
  out->set_kv_factor(layout.kv_factor);
  out->set_num_kv_heads(layout.num_kv_heads);
  out->set_tokens_per_block(layout.tokens_per_block);
  out->set_head_dim(layout.head_dim);
  out->set_slot_stride_bytes(layout.slot_stride_bytes());
  out->set_layer_stride_bytes(layout.layer_stride_bytes());
  out->set_kv_stride_bytes(layout.kv_stride_bytes());
  out->set_head_stride_bytes(layout.head_stride_bytes());
  out->set_token_stride_bytes(layout.token_stride_bytes());
  for (const MappingSegment& segment : mapping.segments) {
    SegmentToProto(segment, out->add_segments());
  }
}

void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                            v1::OperationResult* out) {
  if (!result.ok()) {
    *out->mutable_error() = ToProtoStatus(result.status());
    return;
  }
  std::visit(ResultWriter{out}, *result);
}

void BatchStateToProto(const BatchResult& batch, v1::BatchResult* out) {
  out->set_revision(batch.revision.value());
  out->set_completed_ticket(batch.completed.value());
  out->set_completed_fetch_ticket(batch.completed_fetch.value());
  out->set_completed_backup_ticket(batch.completed_backup.value());
  out->clear_shortened();
  for (const ShortenedSequence& sequence : batch.shortened) {
    v1::ShortenedSequence* shortened = out->add_shortened();
    shortened->set_sequence_id(sequence.sequence.value());
    shortened->set_computed_tokens(sequence.computed_tokens);
    shortened->set_losses(sequence.losses);
    shortened->set_must_be_freed(sequence.must_be_freed);
  }
}

}  // namespace pagoda::server
