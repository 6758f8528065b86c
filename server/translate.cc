#include "server/translate.h"

#include <utility>
#include <variant>

#include "absl/time/time.h"
#include "pools/check.h"
#include "pools/error.h"
#include "server/error_map.h"

namespace pagoda::server {
namespace {

// --- Operations in ---

template <class Proto>
std::vector<TokenId> TokensFrom(const Proto& proto) {
  return {proto.tokens().begin(), proto.tokens().end()};
}

std::vector<BlockRef> BlocksFrom(const google::protobuf::RepeatedPtrField<v1::BlockRef>& protos) {
  std::vector<BlockRef> blocks;
  blocks.reserve(protos.size());
  for (const v1::BlockRef& proto : protos) {
    blocks.push_back({BlockId(proto.block_id()), Generation(proto.generation())});
  }
  return blocks;
}

// --- Results out ---

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
}

void MappingToProto(const PoolMapping& mapping, v1::PoolMapping* out) {
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

// Fills the member of the wire's oneof that goes with each result.
struct ResultWriter {
  v1::OperationResult* out;

  void operator()(const AllocatedBlocks& result) const {
    AddBlocks(result.blocks, out->mutable_allocate_blocks()->mutable_blocks());
  }
  void operator()(const FreedBlocks&) const { out->mutable_free_blocks(); }
  void operator()(const AddedSequence& result) const {
    v1::AddSequenceResult* proto = out->mutable_add_sequence();
    proto->set_matched_tokens(result.matched_tokens);
    AddTables(result.tables, proto->mutable_tables());
  }
  void operator()(const ReservedTokens& result) const {
    AddTables(result.added, out->mutable_reserve_tokens()->mutable_added());
  }
  void operator()(const CommittedTokens& result) const {
    out->mutable_commit_tokens()->set_token_count(result.token_count);
  }
  void operator()(const AppendedTokens& result) const {
    v1::AppendTokensResult* proto = out->mutable_append_tokens();
    AddTables(result.added, proto->mutable_added());
    proto->set_token_count(result.token_count);
  }
  void operator()(const FreedSequence&) const { out->mutable_free_sequence(); }
  void operator()(const MatchedPrefix& result) const {
    v1::MatchPrefixResult* proto = out->mutable_match_prefix();
    proto->set_matched_tokens(result.matched_tokens);
    AddBlocks(result.blocks, proto->mutable_blocks());
  }
  void operator()(const DescribedPools& result) const {
    v1::DescribePoolsResult* proto = out->mutable_describe_pools();
    for (const PoolMapping& mapping : result.pools) MappingToProto(mapping, proto->add_pools());
  }
  void operator()(const DescribedSequence& result) const {
    v1::DescribeSequenceResult* proto = out->mutable_describe_sequence();
    proto->set_token_count(result.token_count);
    proto->set_computed_tokens(result.computed_tokens);
    proto->set_room_tokens(result.room_tokens);
    AddTables(result.tables, proto->mutable_tables());
  }
};

}  // namespace

uint32_t WindowToProto(WindowSize window) { return window == kFullAttention ? 0 : window.value(); }

WindowSize WindowFromProto(uint32_t window_size) {
  return window_size == 0 ? kFullAttention : WindowSize(window_size);
}

v1::Tier TierToProto(Tier tier) {
  return tier == Tier::kPrimary ? v1::TIER_PRIMARY : v1::TIER_SECONDARY;
}

SessionRef SessionFromProto(const v1::SessionRef& proto) {
  return {SessionId(proto.session_id()), SessionToken(proto.token())};
}

void SessionToProto(SessionRef session, v1::SessionRef* out) {
  out->set_session_id(session.id.value());
  out->set_token(session.token.value());
}

NamespaceKey NamespaceFromProto(const v1::Namespace& proto) {
  NamespaceKey key;
  if (proto.has_lora_id()) key.lora_id = proto.lora_id();
  key.cache_salt = proto.cache_salt();
  return key;
}

void NamespaceToProto(const NamespaceKey& key, v1::Namespace* out) {
  if (key.lora_id.has_value()) out->set_lora_id(*key.lora_id);
  out->set_cache_salt(key.cache_salt);
}

void CacheInfoToProto(const CacheInfo& info, v1::CacheInfo* out) {
  out->set_name(info.name);
  out->set_model_fingerprint(info.model_fingerprint);
  out->set_rank(info.rank);
  out->set_tokens_per_block(info.tokens_per_block);
  for (const CacheInfo::Window& window : info.windows) {
    v1::WindowInfo* proto = out->add_windows();
    proto->set_window_size(WindowToProto(window.window));
    proto->set_primary_blocks(window.primary_blocks);
    proto->set_secondary_blocks(window.secondary_blocks);
  }
}

absl::StatusOr<Operation> OperationFromProto(const v1::Operation& proto) {
  switch (proto.operation_case()) {
    case v1::Operation::kAllocateBlocks:
      return AllocateBlocks{WindowFromProto(proto.allocate_blocks().window_size()),
                            proto.allocate_blocks().count()};
    case v1::Operation::kFreeBlocks:
      return FreeBlocks{WindowFromProto(proto.free_blocks().window_size()),
                        BlocksFrom(proto.free_blocks().blocks())};
    case v1::Operation::kAddSequence:
      return AddSequence{SequenceId(proto.add_sequence().sequence_id()),
                         NamespaceFromProto(proto.add_sequence().namespace_()),
                         TokensFrom(proto.add_sequence()), proto.add_sequence().room_tokens()};
    case v1::Operation::kReserveTokens:
      return ReserveTokens{SequenceId(proto.reserve_tokens().sequence_id()),
                           proto.reserve_tokens().count()};
    case v1::Operation::kCommitTokens:
      return CommitTokens{SequenceId(proto.commit_tokens().sequence_id()),
                          TokensFrom(proto.commit_tokens()),
                          proto.commit_tokens().computed_tokens()};
    case v1::Operation::kAppendTokens:
      return AppendTokens{SequenceId(proto.append_tokens().sequence_id()),
                          TokensFrom(proto.append_tokens()),
                          proto.append_tokens().computed_tokens()};
    case v1::Operation::kFreeSequence:
      return FreeSequence{SequenceId(proto.free_sequence().sequence_id())};
    case v1::Operation::kMatchPrefix:
      return MatchPrefix{NamespaceFromProto(proto.match_prefix().namespace_()),
                         TokensFrom(proto.match_prefix())};
    case v1::Operation::kDescribePools:
      return DescribePools{};
    case v1::Operation::kDescribeSequence:
      return DescribeSequence{SequenceId(proto.describe_sequence().sequence_id())};
    case v1::Operation::kForkSequence:
    case v1::Operation::kTruncateSequence:
    case v1::Operation::OPERATION_NOT_SET:
      break;
  }
  return MakeError(Reason::kInvalidArgument, "an operation of the batch says nothing to do");
}

void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                            v1::OperationResult* out) {
  if (!result.ok()) {
    *out->mutable_error() = ToProtoStatus(result.status());
    return;
  }
  std::visit(ResultWriter{out}, *result);
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
