#include "clients/cpp/translate.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "clients/cpp/errors.h"

namespace pagoda {
namespace {

// --- Operations out ---

void SetNamespace(const NamespaceKey& key, v1::Namespace* out) {
  if (key.lora_id.has_value()) out->set_lora_id(*key.lora_id);
  out->set_cache_salt(key.cache_salt);
}

template <class Proto>
void SetTokens(const std::vector<TokenId>& tokens, Proto* out) {
  out->mutable_tokens()->Add(tokens.begin(), tokens.end());
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
    SetTokens(op.tokens, request);
    request->set_room_tokens(op.room_tokens);
    SetNamespace(op.name_space, request->mutable_namespace_());
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
  }
  void operator()(const AppendTokens& op) const {
    v1::AppendTokensRequest* request = out->mutable_append_tokens();
    request->set_sequence_id(op.sequence.value());
    SetTokens(op.tokens, request);
    request->set_computed_tokens(op.computed_tokens);
  }
  void operator()(const FreeSequence& op) const {
    out->mutable_free_sequence()->set_sequence_id(op.sequence.value());
  }
  void operator()(const MatchPrefix& op) const {
    v1::MatchPrefixRequest* request = out->mutable_match_prefix();
    SetTokens(op.tokens, request);
    SetNamespace(op.name_space, request->mutable_namespace_());
  }
  void operator()(const DescribePools&) const { out->mutable_describe_pools(); }
  void operator()(const DescribeSequence& op) const {
    out->mutable_describe_sequence()->set_sequence_id(op.sequence.value());
  }
};

// --- Results in ---

std::vector<BlockHandle> BlocksFrom(
    const google::protobuf::RepeatedPtrField<v1::BlockHandle>& protos) {
  std::vector<BlockHandle> blocks;
  blocks.reserve(protos.size());
  for (const v1::BlockHandle& proto : protos) {
    blocks.push_back(
        {BlockId(proto.block_id()), Generation(proto.generation()), SlotIndex(proto.slot_index())});
  }
  return blocks;
}

std::vector<BlockTable> TablesFrom(
    const google::protobuf::RepeatedPtrField<v1::BlockTable>& protos) {
  std::vector<BlockTable> tables;
  tables.reserve(protos.size());
  for (const v1::BlockTable& proto : protos) {
    tables.push_back({WindowFromProto(proto.window_size()), BlocksFrom(proto.blocks())});
  }
  return tables;
}

absl::StatusOr<Tier> TierFrom(v1::Tier proto) {
  switch (proto) {
    case v1::TIER_PRIMARY:
      return Tier::kPrimary;
    case v1::TIER_SECONDARY:
      return Tier::kSecondary;
    default:
      return absl::InternalError(absl::StrCat("the daemon named an unknown tier: ", proto));
  }
}

absl::StatusOr<DType> DTypeFrom(v1::DType proto) {
  switch (proto) {
    case v1::DTYPE_FLOAT32:
      return DType::kFloat32;
    case v1::DTYPE_FLOAT16:
      return DType::kFloat16;
    case v1::DTYPE_BFLOAT16:
      return DType::kBFloat16;
    default:
      return absl::InternalError(absl::StrCat("the daemon named an unknown dtype: ", proto));
  }
}

// The core's PoolLayout has no strides of its own: they follow from the shape. A daemon that lays
// slots out otherwise is refused here, instead of being misread later.
absl::Status CheckStrides(const v1::PoolMapping& proto, const PoolLayout& layout) {
  if (proto.slot_stride_bytes() == layout.slot_stride_bytes() &&
      proto.layer_stride_bytes() == layout.layer_stride_bytes() &&
      proto.kv_stride_bytes() == layout.kv_stride_bytes() &&
      proto.head_stride_bytes() == layout.head_stride_bytes() &&
      proto.token_stride_bytes() == layout.token_stride_bytes()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(
      "the daemon's pool ", proto.pool_index(),
      " is not [layer][K, V][kv_head][token][head_dim]: ", "its slot stride is ",
      proto.slot_stride_bytes(), " bytes, the shape's is ", layout.slot_stride_bytes()));
}

absl::StatusOr<PoolMapping> PoolMappingFrom(const v1::PoolMapping& proto) {
  const absl::StatusOr<Tier> tier = TierFrom(proto.tier());
  if (!tier.ok()) return tier.status();
  const absl::StatusOr<DType> dtype = DTypeFrom(proto.dtype());
  if (!dtype.ok()) return dtype.status();

  PoolMapping mapping{
      .window = WindowFromProto(proto.window_size()),
      .pool_index = proto.pool_index(),
      .tier = *tier,
      .layout = {.layers = {proto.layers().begin(), proto.layers().end()},
                 .num_kv_heads = proto.num_kv_heads(),
                 .head_dim = proto.head_dim(),
                 .dtype = *dtype,
                 .kv_factor = proto.kv_factor(),
                 .tokens_per_block = proto.tokens_per_block()},
      .num_slots = proto.num_slots(),
      .segments = {},
  };
  if (absl::Status status = CheckStrides(proto, mapping.layout); !status.ok()) return status;
  for (const v1::MappingSegment& segment : proto.segments()) {
    mapping.segments.push_back({.shm_name = segment.shm_name(),
                                .offset_bytes = segment.offset_bytes(),
                                .size_bytes = segment.size_bytes(),
                                .first_slot = segment.first_slot(),
                                .num_slots = segment.num_slots(),
                                .shard = segment.shard()});
  }
  return mapping;
}

absl::StatusOr<OperationResult> PoolsFrom(const v1::DescribePoolsResult& proto) {
  DescribedPools described;
  for (const v1::PoolMapping& pool : proto.pools()) {
    absl::StatusOr<PoolMapping> mapping = PoolMappingFrom(pool);
    if (!mapping.ok()) return mapping.status();
    described.pools.push_back(*std::move(mapping));
  }
  return described;
}

}  // namespace

uint32_t WindowToProto(WindowSize window) { return window == kFullAttention ? 0 : window.value(); }

WindowSize WindowFromProto(uint32_t window_size) {
  return window_size == 0 ? kFullAttention : WindowSize(window_size);
}

v1::Operation OperationToProto(const Operation& operation) {
  v1::Operation proto;
  std::visit(OperationWriter{&proto}, operation);
  return proto;
}

v1::Batch BatchToProto(absl::Span<const Operation> operations) {
  v1::Batch batch;
  batch.mutable_operations()->Reserve(static_cast<int>(operations.size()));
  for (const Operation& operation : operations) {
    std::visit(OperationWriter{batch.add_operations()}, operation);
  }
  return batch;
}

absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto) {
  if (proto.has_error()) {
    absl::Status error = StatusFromProto(proto.error());
    if (error.ok()) return absl::InternalError("the daemon sent an error with the code OK");
    return error;
  }
  switch (proto.result_case()) {
    case v1::OperationResult::kAllocateBlocks:
      return AllocatedBlocks{BlocksFrom(proto.allocate_blocks().blocks())};
    case v1::OperationResult::kFreeBlocks:
      return FreedBlocks{};
    case v1::OperationResult::kAddSequence:
      return AddedSequence{proto.add_sequence().matched_tokens(),
                           TablesFrom(proto.add_sequence().tables())};
    case v1::OperationResult::kReserveTokens:
      return ReservedTokens{TablesFrom(proto.reserve_tokens().added())};
    case v1::OperationResult::kCommitTokens:
      return CommittedTokens{proto.commit_tokens().token_count()};
    case v1::OperationResult::kAppendTokens:
      return AppendedTokens{TablesFrom(proto.append_tokens().added()),
                            proto.append_tokens().token_count()};
    case v1::OperationResult::kFreeSequence:
      return FreedSequence{};
    case v1::OperationResult::kMatchPrefix:
      return MatchedPrefix{proto.match_prefix().matched_tokens(),
                           BlocksFrom(proto.match_prefix().blocks())};
    case v1::OperationResult::kDescribePools:
      return PoolsFrom(proto.describe_pools());
    case v1::OperationResult::kDescribeSequence:
      return DescribedSequence{
          proto.describe_sequence().token_count(), proto.describe_sequence().computed_tokens(),
          proto.describe_sequence().room_tokens(), TablesFrom(proto.describe_sequence().tables())};
    case v1::OperationResult::RESULT_NOT_SET:
      break;
  }
  return absl::InternalError("the daemon sent an empty operation result");
}

BatchResult BatchResultFromProto(const v1::BatchResult& proto) {
  BatchResult batch;
  batch.results.reserve(proto.results_size());
  for (const v1::OperationResult& result : proto.results()) {
    batch.results.push_back(OperationResultFromProto(result));
  }
  batch.revision = Revision(proto.revision());
  return batch;
}

CacheInfo CacheInfoFromProto(const v1::CacheInfo& proto) {
  CacheInfo info{.name = proto.name(),
                 .model_fingerprint = proto.model_fingerprint(),
                 .rank = proto.rank(),
                 .tokens_per_block = proto.tokens_per_block(),
                 .windows = {}};
  for (const v1::WindowInfo& window : proto.windows()) {
    info.windows.push_back({WindowFromProto(window.window_size()), window.primary_blocks(),
                            window.secondary_blocks()});
  }
  return info;
}

}  // namespace pagoda
