#include "server/translate_operations.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "manager/operation_checks.h"
#include "manager/retention.h"
#include "pools/error.h"
#include "server/translate.h"

namespace pagoda::server {
namespace {

template <class T>
using Repeated = google::protobuf::RepeatedPtrField<T>;

absl::Status Refuse(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

template <class Proto>
std::vector<TokenId> TokensFrom(const Proto& proto) {
  return {proto.tokens().begin(), proto.tokens().end()};
}

template <class Proto>
std::vector<uint64_t> ExtraIdsFrom(const Proto& proto) {
  return {proto.extra_token_ids().begin(), proto.extra_token_ids().end()};
}

std::vector<BlockRef> BlocksFrom(const Repeated<v1::BlockRef>& protos) {
  std::vector<BlockRef> blocks;
  blocks.reserve(protos.size());
  for (const v1::BlockRef& proto : protos) {
    blocks.push_back({BlockId(proto.block_id()), Generation(proto.generation())});
  }
  return blocks;
}

// --- Multimodal items ---

constexpr size_t kDigestBytes = sizeof(ItemDigest);

ItemDigest DigestFrom(const std::string& bytes) {
  ItemDigest digest = {};
  for (size_t i = 0; i < kDigestBytes; ++i) {
    digest[i / 8] |= uint64_t{static_cast<unsigned char>(bytes[i])} << (i % 8 * 8);
  }
  return digest;
}

absl::StatusOr<std::vector<MultimodalItem>> ItemsFrom(const Repeated<v1::MultimodalItem>& protos) {
  std::vector<MultimodalItem> items;
  items.reserve(protos.size());
  for (const v1::MultimodalItem& proto : protos) {
    if (proto.digest().size() != kDigestBytes) {
      return Refuse(absl::StrCat("multimodal_items[", items.size(), "].digest has ",
                                 proto.digest().size(), " bytes; a digest has ", kDigestBytes));
    }
    items.push_back({.digest = DigestFrom(proto.digest()),
                     .token_start = proto.token_start(),
                     .token_count = proto.token_count(),
                     .item_offset = proto.item_offset()});
  }
  return items;
}

// --- Retention ---

constexpr uint64_t kMaxMilliseconds = std::numeric_limits<int64_t>::max();

absl::StatusOr<absl::Duration> DurationFrom(const std::string& field, uint64_t milliseconds) {
  if (milliseconds <= kMaxMilliseconds) {
    return absl::Milliseconds(static_cast<int64_t>(milliseconds));
  }
  return Refuse(absl::StrCat(field, " is ", milliseconds, "; at most ", kMaxMilliseconds));
}

// `prefix` is what stands before "priority" and "duration_ms" in the fields' names.
absl::StatusOr<BlockRetention> BlockRetentionFrom(const std::string& prefix, uint32_t priority,
                                                  std::optional<uint64_t> duration_ms) {
  if (priority > kMaxPriority) {
    return Refuse(absl::StrCat(prefix, "priority is ", priority, "; at most ", kMaxPriority));
  }
  BlockRetention retention{.priority = Priority(static_cast<uint8_t>(priority))};
  if (!duration_ms.has_value()) return retention;
  const absl::StatusOr<absl::Duration> duration =
      DurationFrom(absl::StrCat(prefix, "duration_ms"), *duration_ms);
  if (!duration.ok()) return duration.status();
  retention.duration = *duration;
  return retention;
}

absl::StatusOr<std::vector<RetentionRange>> RangesFrom(const Repeated<v1::RetentionRange>& protos) {
  const auto count = static_cast<size_t>(protos.size());
  if (count > kMaxRetentionRanges) {
    return Refuse(
        absl::StrCat(count, " retention ranges; at most ", kMaxRetentionRanges, " may be"));
  }
  std::vector<RetentionRange> ranges;
  ranges.reserve(count);
  for (const v1::RetentionRange& proto : protos) {
    const auto duration_ms =
        proto.has_duration_ms() ? std::optional(proto.duration_ms()) : std::nullopt;
    const absl::StatusOr<BlockRetention> retention = BlockRetentionFrom(
        absl::StrCat("retention[", ranges.size(), "]."), proto.priority(), duration_ms);
    if (!retention.ok()) return retention.status();
    RetentionRange& range = ranges.emplace_back();
    range.token_start = proto.token_start();
    if (proto.has_token_end()) range.token_end = proto.token_end();
    range.retention = *retention;
  }
  return ranges;
}

absl::StatusOr<SequenceRetention> RetentionFrom(const v1::AddSequenceRequest& proto) {
  absl::StatusOr<std::vector<RetentionRange>> ranges = RangesFrom(proto.retention());
  if (!ranges.ok()) return ranges.status();
  SequenceRetention retention{.ranges = *std::move(ranges)};
  const auto duration_ms = proto.has_generated_duration_ms()
                               ? std::optional(proto.generated_duration_ms())
                               : std::nullopt;
  if (!proto.has_generated_priority()) {
    if (duration_ms.has_value()) {
      return Refuse("generated_duration_ms is set without a generated_priority");
    }
    return retention;
  }
  const absl::StatusOr<BlockRetention> generated =
      BlockRetentionFrom("generated_", proto.generated_priority(), duration_ms);
  if (!generated.ok()) return generated.status();
  retention.generated = *generated;
  return retention;
}

// --- Operations that can be wrong ---

absl::StatusOr<Operation> AddSequenceFrom(const v1::AddSequenceRequest& proto) {
  absl::StatusOr<std::vector<MultimodalItem>> items = ItemsFrom(proto.multimodal_items());
  if (!items.ok()) return items.status();
  absl::StatusOr<SequenceRetention> retention = RetentionFrom(proto);
  if (!retention.ok()) return retention.status();
  return AddSequence{.sequence = SequenceId(proto.sequence_id()),
                     .name_space = NamespaceFromProto(proto.namespace_()),
                     .tokens = TokensFrom(proto),
                     .room_tokens = proto.room_tokens(),
                     .extra_token_ids = ExtraIdsFrom(proto),
                     .multimodal_items = *std::move(items),
                     .retention = *std::move(retention),
                     .tenant = proto.tenant()};
}

// An operation of type T with all that names its prefix.
template <class T, class Proto>
absl::StatusOr<T> PrefixFrom(const Proto& proto) {
  absl::StatusOr<std::vector<MultimodalItem>> items = ItemsFrom(proto.multimodal_items());
  if (!items.ok()) return items.status();
  T operation;
  operation.name_space = NamespaceFromProto(proto.namespace_());
  operation.tokens = TokensFrom(proto);
  operation.extra_token_ids = ExtraIdsFrom(proto);
  operation.multimodal_items = *std::move(items);
  return operation;
}

template <class T, class Proto>
absl::StatusOr<Operation> PrefixOperationFrom(const Proto& proto) {
  absl::StatusOr<T> operation = PrefixFrom<T>(proto);
  if (!operation.ok()) return operation.status();
  return *std::move(operation);
}

absl::StatusOr<Operation> QueryCapacityFrom(const v1::QueryCapacityRequest& proto) {
  absl::StatusOr<QueryCapacity> query = PrefixFrom<QueryCapacity>(proto);
  if (!query.ok()) return query.status();
  query->sequence = SequenceId(proto.sequence_id());
  query->max_new_tokens = proto.max_new_tokens();
  query->tenant = proto.tenant();
  return *std::move(query);
}

absl::StatusOr<Operation> PinPrefixFrom(const v1::PinPrefixRequest& proto) {
  absl::StatusOr<PinPrefix> pin = PrefixFrom<PinPrefix>(proto);
  if (!pin.ok()) return pin.status();
  if (!proto.has_lease_ms()) return *std::move(pin);
  const absl::StatusOr<absl::Duration> lease = DurationFrom("lease_ms", proto.lease_ms());
  if (!lease.ok()) return lease.status();
  pin->lease = *lease;
  return *std::move(pin);
}

// An unknown target or lane is refused, not taken for another one.

absl::StatusOr<Operation> PrefetchPrefixFrom(const v1::PrefetchPrefixRequest& proto) {
  absl::StatusOr<PrefetchPrefix> prefetch = PrefixFrom<PrefetchPrefix>(proto);
  if (!prefetch.ok()) return prefetch.status();
  switch (proto.target()) {
    case v1::PREFETCH_TARGET_UNSPECIFIED:
    case v1::PREFETCH_TARGET_PRIMARY:
      prefetch->target = PrefetchTarget::kPrimary;
      break;
    case v1::PREFETCH_TARGET_MEMORY:
      prefetch->target = PrefetchTarget::kMemory;
      break;
    default:
      return Refuse(absl::StrCat("there is no prefetch target ", proto.target()));
  }
  if (!proto.has_deadline_ms()) return *std::move(prefetch);
  const absl::StatusOr<absl::Duration> deadline = DurationFrom("deadline_ms", proto.deadline_ms());
  if (!deadline.ok()) return deadline.status();
  prefetch->deadline = *deadline;
  return *std::move(prefetch);
}

absl::StatusOr<Operation> WaitForTicketFrom(const v1::WaitForTicketRequest& proto) {
  WaitForTicket wait{.ticket = Ticket(proto.ticket())};
  switch (proto.lane()) {
    case v1::LANE_MEMORY:
      wait.lane = Lane::kMemory;
      return wait;
    case v1::LANE_FETCH:
      wait.lane = Lane::kFetch;
      return wait;
    case v1::LANE_BACKUP:
      wait.lane = Lane::kBackup;
      return wait;
    default:
      return Refuse(absl::StrCat("there is no lane ", proto.lane()));
  }
}

absl::StatusOr<Operation> SetRetentionFrom(const v1::SetRetentionRequest& proto) {
  absl::StatusOr<SetRetention> set = PrefixFrom<SetRetention>(proto);
  if (!set.ok()) return set.status();
  absl::StatusOr<std::vector<RetentionRange>> ranges = RangesFrom(proto.retention());
  if (!ranges.ok()) return ranges.status();
  set->retention.ranges = *std::move(ranges);
  return *std::move(set);
}

}  // namespace

absl::StatusOr<MatchPrefix> PromptFromProto(const v1::InspectPrefixRequest& proto) {
  return PrefixFrom<MatchPrefix>(proto);
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
      return AddSequenceFrom(proto.add_sequence());
    case v1::Operation::kReserveTokens:
      return ReserveTokens{SequenceId(proto.reserve_tokens().sequence_id()),
                           proto.reserve_tokens().count()};
    case v1::Operation::kCommitTokens:
      return CommitTokens{
          SequenceId(proto.commit_tokens().sequence_id()), TokensFrom(proto.commit_tokens()),
          proto.commit_tokens().computed_tokens(), proto.commit_tokens().known_losses()};
    case v1::Operation::kAppendTokens:
      return AppendTokens{
          SequenceId(proto.append_tokens().sequence_id()), TokensFrom(proto.append_tokens()),
          proto.append_tokens().computed_tokens(), proto.append_tokens().known_losses()};
    case v1::Operation::kFreeSequence:
      return FreeSequence{SequenceId(proto.free_sequence().sequence_id())};
    case v1::Operation::kMatchPrefix:
      return PrefixOperationFrom<MatchPrefix>(proto.match_prefix());
    case v1::Operation::kDescribePools:
      return DescribePools{};
    case v1::Operation::kDescribeSequence:
      return DescribeSequence{SequenceId(proto.describe_sequence().sequence_id())};
    case v1::Operation::kForkSequence:
      return ForkSequence{SequenceId(proto.fork_sequence().sequence_id()),
                          SequenceId(proto.fork_sequence().new_sequence_id())};
    case v1::Operation::kTruncateSequence:
      return TruncateSequence{SequenceId(proto.truncate_sequence().sequence_id()),
                              proto.truncate_sequence().token_count()};
    case v1::Operation::kQueryCapacity:
      return QueryCapacityFrom(proto.query_capacity());
    case v1::Operation::kOffloadPrefix:
      return PrefixOperationFrom<OffloadPrefix>(proto.offload_prefix());
    case v1::Operation::kPrefetchPrefix:
      return PrefetchPrefixFrom(proto.prefetch_prefix());
    case v1::Operation::kPinPrefix:
      return PinPrefixFrom(proto.pin_prefix());
    case v1::Operation::kUnpinPrefix:
      return UnpinPrefix{PinId(proto.unpin_prefix().pin_id())};
    case v1::Operation::kListPins:
      return ListPins{};
    case v1::Operation::kInvalidatePrefix:
      return PrefixOperationFrom<InvalidatePrefix>(proto.invalidate_prefix());
    case v1::Operation::kSetRetention:
      return SetRetentionFrom(proto.set_retention());
    case v1::Operation::kWaitForTicket:
      return WaitForTicketFrom(proto.wait_for_ticket());
    case v1::Operation::OPERATION_NOT_SET:
      break;
  }
  return Refuse("an operation of the batch says nothing to do");
}

StepRange StepsFromProto(const v1::Batch& proto) {
  return {.step = proto.step(), .completed_step = proto.completed_step()};
}

}  // namespace pagoda::server
