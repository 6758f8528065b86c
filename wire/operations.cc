// Each operation has two functions, chosen by the types: Encode takes the core's value, and Decode
// takes the wire's message.
#include "wire/operations.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "wire/prefix_fields.h"
#include "wire/retention_fields.h"
#include "wire/rows.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

// --- Raw blocks ---

void Encode(const AllocateBlocks& op, v1::AllocateBlocksRequest* out) {
  out->set_window_size(WindowToProto(op.window));
  out->set_count(op.count);
}

AllocateBlocks Decode(const v1::AllocateBlocksRequest& proto) {
  return {WindowFromProto(proto.window_size()), proto.count()};
}

static_assert(sizeof(BlockRef) == 2 * sizeof(uint32_t), "a reference is a row of the wire");

absl::Status NoRows(size_t bytes, size_t of_a_row) {
  return InvalidArgument(absl::StrCat("blocks has ", bytes, " bytes; its rows have ", of_a_row));
}

void Encode(const FreeBlocks& op, v1::FreeBlocksRequest* out) {
  out->set_window_size(WindowToProto(op.window));
  out->set_blocks(RowsToBytes<BlockRef>(op.blocks));
}

absl::StatusOr<FreeBlocks> Decode(const v1::FreeBlocksRequest& proto) {
  auto blocks = RowsFromBytes<BlockRef>(proto.blocks());
  if (!blocks.has_value()) return NoRows(proto.blocks().size(), sizeof(BlockRef));
  return FreeBlocks{WindowFromProto(proto.window_size()), *std::move(blocks)};
}

// A row of FillBlocksRequest.blocks.
struct FillRow {
  BlockRef block;
  uint32_t filled_tokens;
  uint32_t finalize;
};

void Encode(const FillBlocks& op, v1::FillBlocksRequest* out) {
  out->set_window_size(WindowToProto(op.window));
  std::vector<FillRow> rows;
  rows.reserve(op.blocks.size());
  for (const BlockFill& fill : op.blocks) {
    rows.push_back({fill.block, fill.filled_tokens, fill.end == BlockFill::End::kFinal ? 1u : 0u});
  }
  out->set_blocks(RowsToBytes<FillRow>(rows));
}

absl::StatusOr<FillBlocks> Decode(const v1::FillBlocksRequest& proto) {
  const auto rows = RowsFromBytes<FillRow>(proto.blocks());
  if (!rows.has_value()) return NoRows(proto.blocks().size(), sizeof(FillRow));
  FillBlocks op{WindowFromProto(proto.window_size()), {}};
  op.blocks.reserve(rows->size());
  for (const FillRow& row : *rows) {
    if (row.finalize > 1) {
      return InvalidArgument(absl::StrCat("blocks[", op.blocks.size(), "] has a finalize of ",
                                          row.finalize, "; it is 0 or 1"));
    }
    op.blocks.push_back(
        {.block = row.block,
         .filled_tokens = row.filled_tokens,
         .end = row.finalize == 1 ? BlockFill::End::kFinal : BlockFill::End::kOpen});
  }
  return op;
}

void Encode(const DescribeBlocks& op, v1::DescribeBlocksRequest* out) {
  out->set_window_size(WindowToProto(op.window));
  out->set_blocks(RowsToBytes<BlockRef>(op.blocks));
}

absl::StatusOr<DescribeBlocks> Decode(const v1::DescribeBlocksRequest& proto) {
  auto blocks = RowsFromBytes<BlockRef>(proto.blocks());
  if (!blocks.has_value()) return NoRows(proto.blocks().size(), sizeof(BlockRef));
  return DescribeBlocks{WindowFromProto(proto.window_size()), *std::move(blocks)};
}

// --- Sequences ---

void Encode(const AddSequence& op, v1::AddSequenceRequest* out) {
  out->set_sequence_id(op.sequence.value());
  PrefixToProto(op, out);
  out->set_reserved_tokens(op.reserved_tokens);
  RetentionToProto(op.retention, out);
  out->set_tenant(op.tenant);
  out->set_whole_blocks_only(op.whole_blocks_only);
  out->set_uncounted(op.uncounted);
}

absl::StatusOr<AddSequence> Decode(const v1::AddSequenceRequest& proto) {
  absl::StatusOr<AddSequence> op = PrefixFromProto<AddSequence>(proto);
  if (!op.ok()) return op;
  absl::StatusOr<SequenceRetention> retention = RetentionFromProto(proto);
  if (!retention.ok()) return retention.status();
  op->sequence = SequenceId(proto.sequence_id());
  op->reserved_tokens = proto.reserved_tokens();
  op->retention = *std::move(retention);
  op->tenant = proto.tenant();
  op->whole_blocks_only = proto.whole_blocks_only();
  op->uncounted = proto.uncounted();
  return op;
}

void Encode(const ReserveTokens& op, v1::ReserveTokensRequest* out) {
  out->set_sequence_id(op.sequence.value());
  out->set_count(op.count);
}

ReserveTokens Decode(const v1::ReserveTokensRequest& proto) {
  return {SequenceId(proto.sequence_id()), proto.count()};
}

// CommitTokens and AppendTokens have the same fields.
template <class Named, class Proto>
void EncodeNamed(const Named& op, Proto* out) {
  out->set_sequence_id(op.sequence.value());
  TokensToProto(op.tokens, out);
  out->set_computed_tokens(op.computed_tokens);
  out->set_known_losses(op.known_losses);
  KeysToProto(op.keys, out->mutable_keys());
}

template <class Named, class Proto>
absl::StatusOr<Named> DecodeNamed(const Proto& proto) {
  absl::StatusOr<std::vector<ClientKey>> keys = KeysFromProto(proto.keys());
  if (!keys.ok()) return keys.status();
  return Named{SequenceId(proto.sequence_id()), TokensFromProto(proto), proto.computed_tokens(),
               proto.known_losses(), *std::move(keys)};
}

void Encode(const CommitTokens& op, v1::CommitTokensRequest* out) { EncodeNamed(op, out); }
absl::StatusOr<CommitTokens> Decode(const v1::CommitTokensRequest& proto) {
  return DecodeNamed<CommitTokens>(proto);
}

void Encode(const AppendTokens& op, v1::AppendTokensRequest* out) { EncodeNamed(op, out); }
absl::StatusOr<AppendTokens> Decode(const v1::AppendTokensRequest& proto) {
  return DecodeNamed<AppendTokens>(proto);
}

void Encode(const AppendStep& op, v1::AppendStepRequest* out) {
  out->mutable_sequence_ids()->Reserve(static_cast<int>(op.sequences.size()));
  for (const SequenceId sequence : op.sequences) out->add_sequence_ids(sequence.value());
  TokensToProto(op.tokens, out);
  out->mutable_token_counts()->Add(op.token_counts.begin(), op.token_counts.end());
  out->mutable_computed_tokens()->Add(op.computed_tokens.begin(), op.computed_tokens.end());
  out->mutable_known_losses()->Add(op.known_losses.begin(), op.known_losses.end());
}

AppendStep Decode(const v1::AppendStepRequest& proto) {
  AppendStep op{.token_counts = {proto.token_counts().begin(), proto.token_counts().end()},
                .computed_tokens = {proto.computed_tokens().begin(), proto.computed_tokens().end()},
                .known_losses = {proto.known_losses().begin(), proto.known_losses().end()},
                .tokens = TokensFromProto(proto)};
  op.sequences.reserve(proto.sequence_ids_size());
  for (const uint64_t sequence : proto.sequence_ids()) op.sequences.emplace_back(sequence);
  return op;
}

void Encode(const FreeSequence& op, v1::FreeSequenceRequest* out) {
  out->set_sequence_id(op.sequence.value());
}

FreeSequence Decode(const v1::FreeSequenceRequest& proto) {
  return {SequenceId(proto.sequence_id())};
}

void Encode(const DescribeSequence& op, v1::DescribeSequenceRequest* out) {
  out->set_sequence_id(op.sequence.value());
}

DescribeSequence Decode(const v1::DescribeSequenceRequest& proto) {
  return {SequenceId(proto.sequence_id())};
}

void Encode(const ForkSequence& op, v1::ForkSequenceRequest* out) {
  out->set_sequence_id(op.sequence.value());
  out->set_new_sequence_id(op.new_sequence.value());
}

ForkSequence Decode(const v1::ForkSequenceRequest& proto) {
  return {SequenceId(proto.sequence_id()), SequenceId(proto.new_sequence_id())};
}

void Encode(const TruncateSequence& op, v1::TruncateSequenceRequest* out) {
  out->set_sequence_id(op.sequence.value());
  out->set_token_count(op.token_count);
}

TruncateSequence Decode(const v1::TruncateSequenceRequest& proto) {
  return {SequenceId(proto.sequence_id()), proto.token_count()};
}

// --- Prefixes ---

void Encode(const MatchPrefix& op, v1::MatchPrefixRequest* out) { PrefixToProto(op, out); }
absl::StatusOr<MatchPrefix> Decode(const v1::MatchPrefixRequest& proto) {
  return PrefixFromProto<MatchPrefix>(proto);
}

void Encode(const OffloadPrefix& op, v1::OffloadPrefixRequest* out) { PrefixToProto(op, out); }
absl::StatusOr<OffloadPrefix> Decode(const v1::OffloadPrefixRequest& proto) {
  return PrefixFromProto<OffloadPrefix>(proto);
}

void Encode(const InvalidatePrefix& op, v1::InvalidatePrefixRequest* out) {
  PrefixToProto(op, out);
}
absl::StatusOr<InvalidatePrefix> Decode(const v1::InvalidatePrefixRequest& proto) {
  return PrefixFromProto<InvalidatePrefix>(proto);
}

void Encode(const QueryCapacity& op, v1::QueryCapacityRequest* out) {
  out->set_sequence_id(op.sequence.value());
  PrefixToProto(op, out);
  out->set_max_new_tokens(op.max_new_tokens);
  out->set_tenant(op.tenant);
}

absl::StatusOr<QueryCapacity> Decode(const v1::QueryCapacityRequest& proto) {
  absl::StatusOr<QueryCapacity> op = PrefixFromProto<QueryCapacity>(proto);
  if (!op.ok()) return op;
  op->sequence = SequenceId(proto.sequence_id());
  op->max_new_tokens = proto.max_new_tokens();
  op->tenant = proto.tenant();
  return op;
}

// Leaves out defaults, because an older daemon refuses fields that it does not know.
void Encode(const PrefetchPrefix& op, v1::PrefetchPrefixRequest* out) {
  PrefixToProto(op, out);
  if (op.target == PrefetchTarget::kMemory) out->set_target(v1::PREFETCH_TARGET_MEMORY);
  if (const auto deadline_ms = MillisecondsOf(op.deadline)) out->set_deadline_ms(*deadline_ms);
}

// Refuses an unknown target.
absl::StatusOr<PrefetchPrefix> Decode(const v1::PrefetchPrefixRequest& proto) {
  absl::StatusOr<PrefetchPrefix> op = PrefixFromProto<PrefetchPrefix>(proto);
  if (!op.ok()) return op;
  switch (proto.target()) {
    case v1::PREFETCH_TARGET_UNSPECIFIED:
    case v1::PREFETCH_TARGET_PRIMARY:
      op->target = PrefetchTarget::kPrimary;
      break;
    case v1::PREFETCH_TARGET_MEMORY:
      op->target = PrefetchTarget::kMemory;
      break;
    default:
      return InvalidArgument(absl::StrCat("there is no prefetch target ", proto.target()));
  }
  if (!proto.has_deadline_ms()) return op;
  const absl::StatusOr<absl::Duration> deadline =
      DurationFromMilliseconds("deadline_ms", proto.deadline_ms());
  if (!deadline.ok()) return deadline.status();
  op->deadline = *deadline;
  return op;
}

void Encode(const PinPrefix& op, v1::PinPrefixRequest* out) {
  PrefixToProto(op, out);
  if (const auto lease_ms = MillisecondsOf(op.lease)) out->set_lease_ms(*lease_ms);
}

absl::StatusOr<PinPrefix> Decode(const v1::PinPrefixRequest& proto) {
  absl::StatusOr<PinPrefix> op = PrefixFromProto<PinPrefix>(proto);
  if (!op.ok() || !proto.has_lease_ms()) return op;
  const absl::StatusOr<absl::Duration> lease =
      DurationFromMilliseconds("lease_ms", proto.lease_ms());
  if (!lease.ok()) return lease.status();
  op->lease = *lease;
  return op;
}

void Encode(const UnpinPrefix& op, v1::UnpinPrefixRequest* out) { out->set_pin_id(op.pin.value()); }

UnpinPrefix Decode(const v1::UnpinPrefixRequest& proto) { return {PinId(proto.pin_id())}; }

// A prefix has no generated tokens, so their retention is left out.
void Encode(const SetRetention& op, v1::SetRetentionRequest* out) {
  PrefixToProto(op, out);
  RangesToProto(op.retention.ranges, out->mutable_retention());
}

absl::StatusOr<SetRetention> Decode(const v1::SetRetentionRequest& proto) {
  absl::StatusOr<SetRetention> op = PrefixFromProto<SetRetention>(proto);
  if (!op.ok()) return op;
  absl::StatusOr<std::vector<RetentionRange>> ranges = RangesFromProto(proto.retention());
  if (!ranges.ok()) return ranges.status();
  op->retention.ranges = *std::move(ranges);
  return op;
}

// --- Others ---

void Encode(const DescribePools&, v1::DescribePoolsRequest*) {}
DescribePools Decode(const v1::DescribePoolsRequest&) { return {}; }

void Encode(const ListPins&, v1::ListPinsRequest*) {}
ListPins Decode(const v1::ListPinsRequest&) { return {}; }

void Encode(const WaitForTicket& op, v1::WaitForTicketRequest* out) {
  out->set_ticket(op.ticket.value());
  out->set_lane(LaneToProto(op.lane));
}

// Refuses an unknown lane.
absl::StatusOr<WaitForTicket> Decode(const v1::WaitForTicketRequest& proto) {
  const std::optional<Lane> lane = LaneFromProto(proto.lane());
  if (!lane.has_value()) return InvalidArgument(absl::StrCat("there is no lane ", proto.lane()));
  return WaitForTicket{.ticket = Ticket(proto.ticket()), .lane = *lane};
}

// --- The oneof ---

// The member of the wire's oneof that belongs to each operation.
struct MemberOf {
  v1::Operation* out;

  auto* operator()(const AllocateBlocks&) const { return out->mutable_allocate_blocks(); }
  auto* operator()(const FreeBlocks&) const { return out->mutable_free_blocks(); }
  auto* operator()(const AddSequence&) const { return out->mutable_add_sequence(); }
  auto* operator()(const ReserveTokens&) const { return out->mutable_reserve_tokens(); }
  auto* operator()(const CommitTokens&) const { return out->mutable_commit_tokens(); }
  auto* operator()(const AppendTokens&) const { return out->mutable_append_tokens(); }
  auto* operator()(const FreeSequence&) const { return out->mutable_free_sequence(); }
  auto* operator()(const MatchPrefix&) const { return out->mutable_match_prefix(); }
  auto* operator()(const DescribePools&) const { return out->mutable_describe_pools(); }
  auto* operator()(const DescribeSequence&) const { return out->mutable_describe_sequence(); }
  auto* operator()(const ForkSequence&) const { return out->mutable_fork_sequence(); }
  auto* operator()(const TruncateSequence&) const { return out->mutable_truncate_sequence(); }
  auto* operator()(const QueryCapacity&) const { return out->mutable_query_capacity(); }
  auto* operator()(const OffloadPrefix&) const { return out->mutable_offload_prefix(); }
  auto* operator()(const PrefetchPrefix&) const { return out->mutable_prefetch_prefix(); }
  auto* operator()(const PinPrefix&) const { return out->mutable_pin_prefix(); }
  auto* operator()(const UnpinPrefix&) const { return out->mutable_unpin_prefix(); }
  auto* operator()(const ListPins&) const { return out->mutable_list_pins(); }
  auto* operator()(const InvalidatePrefix&) const { return out->mutable_invalidate_prefix(); }
  auto* operator()(const SetRetention&) const { return out->mutable_set_retention(); }
  auto* operator()(const WaitForTicket&) const { return out->mutable_wait_for_ticket(); }
  auto* operator()(const AppendStep&) const { return out->mutable_append_step(); }
  auto* operator()(const FillBlocks&) const { return out->mutable_fill_blocks(); }
  auto* operator()(const DescribeBlocks&) const { return out->mutable_describe_blocks(); }
};

void EncodeAny(const Operation& operation, v1::Operation* out) {
  std::visit([out](const auto& op) { Encode(op, MemberOf{out}(op)); }, operation);
}

// Turns the result of a Decode into an Operation, or its error.
template <class T>
absl::StatusOr<Operation> AnyOf(absl::StatusOr<T> operation) {
  if (!operation.ok()) return operation.status();
  return *std::move(operation);
}

}  // namespace

v1::Operation OperationToProto(const Operation& operation) {
  v1::Operation proto;
  EncodeAny(operation, &proto);
  return proto;
}

absl::StatusOr<Operation> OperationFromProto(const v1::Operation& proto) {
  switch (proto.operation_case()) {
    case v1::Operation::kAllocateBlocks:
      return Decode(proto.allocate_blocks());
    case v1::Operation::kFreeBlocks:
      return AnyOf(Decode(proto.free_blocks()));
    case v1::Operation::kAddSequence:
      return AnyOf(Decode(proto.add_sequence()));
    case v1::Operation::kReserveTokens:
      return Decode(proto.reserve_tokens());
    case v1::Operation::kCommitTokens:
      return AnyOf(Decode(proto.commit_tokens()));
    case v1::Operation::kAppendTokens:
      return AnyOf(Decode(proto.append_tokens()));
    case v1::Operation::kFreeSequence:
      return Decode(proto.free_sequence());
    case v1::Operation::kMatchPrefix:
      return AnyOf(Decode(proto.match_prefix()));
    case v1::Operation::kDescribePools:
      return Decode(proto.describe_pools());
    case v1::Operation::kDescribeSequence:
      return Decode(proto.describe_sequence());
    case v1::Operation::kForkSequence:
      return Decode(proto.fork_sequence());
    case v1::Operation::kTruncateSequence:
      return Decode(proto.truncate_sequence());
    case v1::Operation::kQueryCapacity:
      return AnyOf(Decode(proto.query_capacity()));
    case v1::Operation::kOffloadPrefix:
      return AnyOf(Decode(proto.offload_prefix()));
    case v1::Operation::kPrefetchPrefix:
      return AnyOf(Decode(proto.prefetch_prefix()));
    case v1::Operation::kPinPrefix:
      return AnyOf(Decode(proto.pin_prefix()));
    case v1::Operation::kUnpinPrefix:
      return Decode(proto.unpin_prefix());
    case v1::Operation::kListPins:
      return Decode(proto.list_pins());
    case v1::Operation::kInvalidatePrefix:
      return AnyOf(Decode(proto.invalidate_prefix()));
    case v1::Operation::kSetRetention:
      return AnyOf(Decode(proto.set_retention()));
    case v1::Operation::kWaitForTicket:
      return AnyOf(Decode(proto.wait_for_ticket()));
    case v1::Operation::kAppendStep:
      return Decode(proto.append_step());
    case v1::Operation::kFillBlocks:
      return AnyOf(Decode(proto.fill_blocks()));
    case v1::Operation::kDescribeBlocks:
      return AnyOf(Decode(proto.describe_blocks()));
    case v1::Operation::OPERATION_NOT_SET:
      break;
  }
  return InvalidArgument("an operation of the batch has no request");
}

v1::Batch BatchToProto(absl::Span<const Operation> operations, StepRange steps) {
  v1::Batch batch;
  batch.set_step(steps.step);
  batch.set_completed_step(steps.completed_step);
  batch.mutable_operations()->Reserve(static_cast<int>(operations.size()));
  for (const Operation& operation : operations) EncodeAny(operation, batch.add_operations());
  return batch;
}

StepRange StepsFromProto(const v1::Batch& proto) {
  return {.step = proto.step(), .completed_step = proto.completed_step()};
}

v1::InspectPrefixRequest InspectRequestOf(const MatchPrefix& prompt) {
  v1::InspectPrefixRequest request;
  PrefixToProto(prompt, &request);
  return request;
}

absl::StatusOr<MatchPrefix> PromptFromProto(const v1::InspectPrefixRequest& proto) {
  return PrefixFromProto<MatchPrefix>(proto);
}

}  // namespace pagoda
