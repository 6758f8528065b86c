#include "clients/cpp/translate_results.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "clients/cpp/errors.h"
#include "clients/cpp/translate.h"

namespace pagoda {
namespace {

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
    tables.push_back(
        {WindowFromProto(proto.window_size()), proto.first_block(), BlocksFrom(proto.blocks())});
  }
  return tables;
}

absl::StatusOr<Tier> TierFrom(v1::Tier proto) {
  if (proto < v1::TIER_PRIMARY || proto > static_cast<int>(kMaxTiers)) {
    return absl::InternalError(absl::StrCat("the daemon named an unknown tier: ", proto));
  }
  return static_cast<Tier>(proto - v1::TIER_PRIMARY);
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

// An old daemon names no kind: it has host memory alone.
absl::StatusOr<MemoryPlace> PlaceFrom(const v1::MappingSegment& proto) {
  MemoryPlace place;
  if (proto.memory_kind() == v1::MEMORY_KIND_UNSPECIFIED ||
      proto.memory_kind() == v1::MEMORY_KIND_HOST) {
    return place;
  }
  if (proto.memory_kind() != v1::MEMORY_KIND_CUDA) {
    return absl::InternalError(
        absl::StrCat("the daemon named an unknown kind of memory: ", proto.memory_kind()));
  }
  if (proto.device_uuid().size() != place.uuid.size()) {
    return absl::InternalError(absl::StrCat("the daemon named a device by ",
                                            proto.device_uuid().size(), " bytes, not ",
                                            place.uuid.size()));
  }
  place.kind = MemoryKind::kCuda;
  place.device = static_cast<int>(proto.device());
  std::copy(proto.device_uuid().begin(), proto.device_uuid().end(), place.uuid.begin());
  return place;
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

absl::StatusOr<OperationResult> PoolsFrom(const v1::DescribePoolsResult& proto) {
  DescribedPools described;
  for (const v1::PoolMapping& pool : proto.pools()) {
    absl::StatusOr<PoolMapping> mapping = PoolMappingFromProto(pool);
    if (!mapping.ok()) return mapping.status();
    described.pools.push_back(*std::move(mapping));
  }
  return described;
}

NamespaceKey NamespaceFrom(const v1::Namespace& proto) {
  NamespaceKey key;
  if (proto.has_lora_id()) key.lora_id = proto.lora_id();
  key.cache_salt = proto.cache_salt();
  key.tenant = proto.tenant();
  return key;
}

absl::Time TimeFrom(const google::protobuf::Timestamp& proto) {
  return absl::UnixEpoch() + absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
}

CapacityAnswer CapacityFrom(const v1::QueryCapacityResult& proto) {
  CapacityAnswer answer{.matched_tokens = proto.matched_tokens(), .windows = {}};
  for (const v1::WindowCapacity& window : proto.windows()) {
    answer.windows.push_back({.window = WindowFromProto(window.window_size()),
                              .blocks_now = window.blocks_now(),
                              .blocks_to_completion = window.blocks_to_completion(),
                              .available_blocks = window.available_blocks()});
    if (window.has_quota_blocks()) answer.windows.back().quota_blocks = window.quota_blocks();
    if (window.has_quota_left_blocks()) {
      answer.windows.back().quota_left_blocks = window.quota_left_blocks();
    }
  }
  return answer;
}

ListedPins PinsFrom(const v1::ListPinsResult& proto) {
  ListedPins listed{
      .pins = {}, .pinned_blocks = proto.pinned_blocks(), .budget_blocks = proto.budget_blocks()};
  for (const v1::PinInfo& pin : proto.pins()) {
    listed.pins.push_back(
        {.pin = PinId(pin.pin_id()),
         .client_name = pin.client_name(),
         .name_space = NamespaceFrom(pin.namespace_()),
         .pinned_tokens = pin.pinned_tokens(),
         .blocks = pin.blocks(),
         .expires = pin.has_expire_time() ? TimeFrom(pin.expire_time()) : absl::InfiniteFuture(),
         .tenant = pin.tenant()});
  }
  return listed;
}

}  // namespace

absl::StatusOr<PoolMapping> PoolMappingFromProto(const v1::PoolMapping& proto) {
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
    const absl::StatusOr<MemoryPlace> place = PlaceFrom(segment);
    if (!place.ok()) return place.status();
    mapping.segments.push_back({.shm_name = segment.shm_name(),
                                .place = *place,
                                .offset_bytes = segment.offset_bytes(),
                                .size_bytes = segment.size_bytes(),
                                .first_slot = segment.first_slot(),
                                .num_slots = segment.num_slots(),
                                .shard = segment.shard()});
  }
  return mapping;
}

absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto) {
  if (proto.has_error()) {
    absl::Status error = StatusFromProto(proto.error());
    if (error.ok()) return absl::InternalError("the daemon sent an error with the code OK");
    return error;
  }
  switch (proto.result_case()) {
    case v1::OperationResult::kAllocateBlocks:
      return AllocatedBlocks{BlocksFrom(proto.allocate_blocks().blocks()),
                             Ticket(proto.allocate_blocks().ready_ticket())};
    case v1::OperationResult::kFreeBlocks:
      return FreedBlocks{};
    case v1::OperationResult::kAddSequence:
      return AddedSequence{
          proto.add_sequence().matched_tokens(), proto.add_sequence().matched_secondary_tokens(),
          proto.add_sequence().matched_below_tokens(), TablesFrom(proto.add_sequence().tables()),
          Ticket(proto.add_sequence().ready_ticket())};
    case v1::OperationResult::kReserveTokens:
      return ReservedTokens{TablesFrom(proto.reserve_tokens().added()),
                            Ticket(proto.reserve_tokens().ready_ticket())};
    case v1::OperationResult::kCommitTokens:
      return CommittedTokens{proto.commit_tokens().token_count()};
    case v1::OperationResult::kAppendTokens:
      return AppendedTokens{TablesFrom(proto.append_tokens().added()),
                            proto.append_tokens().token_count(),
                            Ticket(proto.append_tokens().ready_ticket())};
    case v1::OperationResult::kFreeSequence:
      return FreedSequence{};
    case v1::OperationResult::kMatchPrefix:
      return MatchedPrefix{proto.match_prefix().matched_tokens(),
                           BlocksFrom(proto.match_prefix().blocks()),
                           proto.match_prefix().cached_tokens(),
                           {proto.match_prefix().tokens_by_tier().begin(),
                            proto.match_prefix().tokens_by_tier().end()}};
    case v1::OperationResult::kDescribePools:
      return PoolsFrom(proto.describe_pools());
    case v1::OperationResult::kDescribeSequence:
      return DescribedSequence{proto.describe_sequence().token_count(),
                               proto.describe_sequence().computed_tokens(),
                               proto.describe_sequence().room_tokens(),
                               proto.describe_sequence().losses(),
                               TablesFrom(proto.describe_sequence().tables()),
                               Ticket(proto.describe_sequence().ready_ticket())};
    case v1::OperationResult::kForkSequence:
      return ForkedSequence{proto.fork_sequence().token_count(),
                            proto.fork_sequence().computed_tokens(), proto.fork_sequence().losses(),
                            TablesFrom(proto.fork_sequence().tables()),
                            Ticket(proto.fork_sequence().ready_ticket())};
    case v1::OperationResult::kTruncateSequence:
      return TruncatedSequence{proto.truncate_sequence().token_count(),
                               proto.truncate_sequence().computed_tokens(),
                               TablesFrom(proto.truncate_sequence().tables()),
                               Ticket(proto.truncate_sequence().ready_ticket())};
    case v1::OperationResult::kQueryCapacity:
      return CapacityFrom(proto.query_capacity());
    case v1::OperationResult::kOffloadPrefix:
      return OffloadedPrefix{proto.offload_prefix().blocks(),
                             Ticket(proto.offload_prefix().ready_ticket())};
    case v1::OperationResult::kPrefetchPrefix:
      return PrefetchedPrefix{
          proto.prefetch_prefix().matched_tokens(), proto.prefetch_prefix().blocks(),
          Ticket(proto.prefetch_prefix().ready_ticket()), proto.prefetch_prefix().fetched_blocks(),
          Ticket(proto.prefetch_prefix().fetch_ticket())};
    case v1::OperationResult::kPinPrefix:
      return PinnedPrefix{PinId(proto.pin_prefix().pin_id()), proto.pin_prefix().pinned_tokens(),
                          proto.pin_prefix().blocks()};
    case v1::OperationResult::kUnpinPrefix:
      return UnpinnedPrefix{};
    case v1::OperationResult::kListPins:
      return PinsFrom(proto.list_pins());
    case v1::OperationResult::kInvalidatePrefix:
      return InvalidatedPrefix{proto.invalidate_prefix().removed_blocks(),
                               Ticket(proto.invalidate_prefix().durable_ticket())};
    case v1::OperationResult::kSetRetention:
      return RetentionSet{proto.set_retention().blocks()};
    case v1::OperationResult::kWaitForTicket:
      return WaitedForTicket{Ticket(proto.wait_for_ticket().completed_ticket())};
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
  batch.completed = Ticket(proto.completed_ticket());
  batch.completed_fetch = Ticket(proto.completed_fetch_ticket());
  batch.completed_backup = Ticket(proto.completed_backup_ticket());
  for (const v1::ShortenedSequence& sequence : proto.shortened()) {
    batch.shortened.push_back({.sequence = SequenceId(sequence.sequence_id()),
                               .computed_tokens = sequence.computed_tokens(),
                               .losses = sequence.losses(),
                               .must_be_freed = sequence.must_be_freed()});
  }
  return batch;
}

}  // namespace pagoda
