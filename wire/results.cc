// A result is written by FieldWriter and read by a Decode.
#include "wire/results.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "wire/backward_writer.h"
#include "wire/cache_info.h"
#include "wire/errors.h"
#include "wire/rows.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

// --- Blocks and tables ---

static_assert(sizeof(BlockHandle) == 3 * sizeof(uint32_t), "a handle is a row of the wire");

using TableProtos = google::protobuf::RepeatedPtrField<v1::BlockTable>;

absl::Status NoRows() { return absl::InternalError("the daemon sent blocks that are not rows"); }

// The result that `make` returns for these tables. Error: INTERNAL (NoRows).
template <class Make>
absl::StatusOr<OperationResult> WithTables(const TableProtos& protos, const Make& make) {
  std::vector<BlockTable> tables;
  tables.reserve(protos.size());
  for (const v1::BlockTable& proto : protos) {
    auto blocks = RowsFromBytes<BlockHandle>(proto.blocks());
    if (!blocks.has_value()) return NoRows();
    tables.push_back(
        {WindowFromProto(proto.window_size()), proto.first_block(), *std::move(blocks)});
  }
  return make(std::move(tables));
}

// --- Raw blocks ---

absl::StatusOr<OperationResult> Decode(const v1::AllocateBlocksResult& proto) {
  auto blocks = RowsFromBytes<BlockHandle>(proto.blocks());
  if (!blocks.has_value()) return NoRows();
  return AllocatedBlocks{*std::move(blocks), Ticket(proto.ready_ticket())};
}

FreedBlocks Decode(const v1::FreeBlocksResult&) { return {}; }

FilledBlocks Decode(const v1::FillBlocksResult&) { return {}; }

DescribedBlocks Decode(const v1::DescribeBlocksResult& proto) {
  DescribedBlocks result;
  result.blocks.reserve(proto.blocks_size());
  for (const v1::BlockState& state : proto.blocks()) {
    result.blocks.push_back({.holders = state.holders(),
                             .filled_tokens = state.filled_tokens(),
                             .finalized = state.finalized(),
                             .cached = state.cached()});
  }
  return result;
}

// --- Sequences ---

absl::StatusOr<OperationResult> Decode(const v1::AddSequenceResult& proto) {
  return WithTables(proto.tables(), [&](std::vector<BlockTable> tables) {
    return AddedSequence{.matched_tokens = proto.matched_tokens(),
                         .matched_secondary_tokens = proto.matched_secondary_tokens(),
                         .matched_below_tokens = proto.matched_below_tokens(),
                         .tables = std::move(tables),
                         .ready = Ticket(proto.ready_ticket())};
  });
}

absl::StatusOr<OperationResult> Decode(const v1::ReserveTokensResult& proto) {
  return WithTables(proto.added(), [&](std::vector<BlockTable> tables) {
    return ReservedTokens{std::move(tables), Ticket(proto.ready_ticket())};
  });
}

CommittedTokens Decode(const v1::CommitTokensResult& proto) { return {proto.token_count()}; }

absl::StatusOr<OperationResult> Decode(const v1::AppendTokensResult& proto) {
  return WithTables(proto.added(), [&](std::vector<BlockTable> tables) {
    return AppendedTokens{std::move(tables), proto.token_count(), Ticket(proto.ready_ticket())};
  });
}

// A row of AppendStepResult.grown.
struct GrowthRow {
  uint32_t index;
  uint32_t first_block;
  uint32_t blocks;
};

absl::StatusOr<OperationResult> Decode(const v1::AppendStepResult& proto) {
  const auto grown = RowsFromBytes<GrowthRow>(proto.grown());
  auto blocks = RowsFromBytes<BlockHandle>(proto.blocks());
  if (!grown.has_value() || !blocks.has_value()) return NoRows();
  if (grown->size() != static_cast<size_t>(proto.ready_tickets_size())) {
    return absl::InternalError("the daemon sent arrays of a step whose lengths do not fit");
  }
  AppendedStep step;
  step.grown.reserve(grown->size());
  for (const GrowthRow& row : *grown) {
    const Ticket ready(proto.ready_tickets(static_cast<int>(step.grown.size())));
    step.grown.push_back({row.index, row.first_block, row.blocks, ready});
  }
  step.blocks = *std::move(blocks);
  for (const v1::FailedAppend& failed : proto.failed()) {
    absl::Status error = StatusFromProto(failed.error());
    if (error.ok()) return absl::InternalError("the daemon sent an error with the code OK");
    step.failed.push_back({failed.index(), std::move(error)});
  }
  return step;
}

FreedSequence Decode(const v1::FreeSequenceResult&) { return {}; }

absl::StatusOr<OperationResult> Decode(const v1::DescribeSequenceResult& proto) {
  return WithTables(proto.tables(), [&](std::vector<BlockTable> tables) {
    return DescribedSequence{.token_count = proto.token_count(),
                             .computed_tokens = proto.computed_tokens(),
                             .reserved_tokens = proto.reserved_tokens(),
                             .losses = proto.losses(),
                             .tables = std::move(tables),
                             .ready = Ticket(proto.ready_ticket())};
  });
}

absl::StatusOr<OperationResult> Decode(const v1::ForkSequenceResult& proto) {
  return WithTables(proto.tables(), [&](std::vector<BlockTable> tables) {
    return ForkedSequence{.token_count = proto.token_count(),
                          .computed_tokens = proto.computed_tokens(),
                          .losses = proto.losses(),
                          .tables = std::move(tables),
                          .ready = Ticket(proto.ready_ticket())};
  });
}

absl::StatusOr<OperationResult> Decode(const v1::TruncateSequenceResult& proto) {
  return WithTables(proto.tables(), [&](std::vector<BlockTable> tables) {
    return TruncatedSequence{.token_count = proto.token_count(),
                             .computed_tokens = proto.computed_tokens(),
                             .tables = std::move(tables),
                             .ready = Ticket(proto.ready_ticket())};
  });
}

// --- Prefixes ---

absl::StatusOr<OperationResult> Decode(const v1::MatchPrefixResult& proto) {
  auto blocks = RowsFromBytes<BlockHandle>(proto.blocks());
  if (!blocks.has_value()) return NoRows();
  return MatchedPrefix{
      .matched_tokens = proto.matched_tokens(),
      .blocks = *std::move(blocks),
      .cached_tokens = proto.cached_tokens(),
      .tokens_by_tier = {proto.tokens_by_tier().begin(), proto.tokens_by_tier().end()}};
}

CapacityAnswer Decode(const v1::QueryCapacityResult& proto) {
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

OffloadedPrefix Decode(const v1::OffloadPrefixResult& proto) {
  return {proto.blocks(), Ticket(proto.ready_ticket())};
}

PrefetchedPrefix Decode(const v1::PrefetchPrefixResult& proto) {
  return {.matched_tokens = proto.matched_tokens(),
          .blocks = proto.blocks(),
          .ready = Ticket(proto.ready_ticket()),
          .fetched_blocks = proto.fetched_blocks(),
          .fetch = Ticket(proto.fetch_ticket())};
}

InvalidatedPrefix Decode(const v1::InvalidatePrefixResult& proto) {
  return {proto.removed_blocks(), Ticket(proto.durable_ticket())};
}

RetentionSet Decode(const v1::SetRetentionResult& proto) { return {proto.blocks()}; }

// --- Pins ---

PinnedPrefix Decode(const v1::PinPrefixResult& proto) {
  return {PinId(proto.pin_id()), proto.pinned_tokens(), proto.blocks()};
}

UnpinnedPrefix Decode(const v1::UnpinPrefixResult&) { return {}; }

v1::PinInfo PinToProto(const PinInfo& pin) {
  v1::PinInfo out;
  out.set_pin_id(pin.pin.value());
  out.set_client_name(pin.client_name);
  NamespaceToProto(pin.name_space, out.mutable_namespace_());
  out.set_pinned_tokens(pin.pinned_tokens);
  out.set_blocks(pin.blocks);
  if (pin.expires != absl::InfiniteFuture()) *out.mutable_expire_time() = TimeToProto(pin.expires);
  out.set_tenant(pin.tenant);
  return out;
}

PinInfo PinFromProto(const v1::PinInfo& proto) {
  return {.pin = PinId(proto.pin_id()),
          .client_name = proto.client_name(),
          .name_space = NamespaceFromProto(proto.namespace_()),
          .pinned_tokens = proto.pinned_tokens(),
          .blocks = proto.blocks(),
          .expires =
              proto.has_expire_time() ? TimeFromProto(proto.expire_time()) : absl::InfiniteFuture(),
          .tenant = proto.tenant()};
}

ListedPins Decode(const v1::ListPinsResult& proto) {
  ListedPins listed{
      .pins = {}, .pinned_blocks = proto.pinned_blocks(), .budget_blocks = proto.budget_blocks()};
  for (const v1::PinInfo& pin : proto.pins()) listed.pins.push_back(PinFromProto(pin));
  return listed;
}

// --- Others ---

absl::StatusOr<OperationResult> Decode(const v1::DescribePoolsResult& proto) {
  DescribedPools described;
  for (const v1::PoolMapping& pool : proto.pools()) {
    absl::StatusOr<PoolMapping> mapping = PoolMappingFromProto(pool);
    if (!mapping.ok()) return mapping.status();
    described.pools.push_back(*std::move(mapping));
  }
  return described;
}

WaitedForTicket Decode(const v1::WaitForTicketResult& proto) {
  return {Ticket(proto.completed_ticket())};
}

ShortenedSequence ShortenedFromProto(const v1::ShortenedSequence& proto) {
  return {.sequence = SequenceId(proto.sequence_id()),
          .computed_tokens = proto.computed_tokens(),
          .losses = proto.losses(),
          .must_be_freed = proto.must_be_freed()};
}

// --- The oneof ---

// The fields of each result's message, the last one first.
struct FieldWriter {
  BackwardWriter& out;

  // --- Raw blocks ---

  void operator()(const AllocatedBlocks& result) const {
    using Proto = v1::AllocateBlocksResult;
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    Rows(Proto::kBlocksFieldNumber, result.blocks);
  }
  void operator()(const FreedBlocks&) const {}
  void operator()(const FilledBlocks&) const {}
  void operator()(const DescribedBlocks& result) const {
    using Proto = v1::BlockState;
    for (auto block = result.blocks.rbegin(); block != result.blocks.rend(); ++block) {
      out.Message(v1::DescribeBlocksResult::kBlocksFieldNumber, [&] {
        out.Number(Proto::kCachedFieldNumber, block->cached ? 1 : 0);
        out.Number(Proto::kFinalizedFieldNumber, block->finalized ? 1 : 0);
        out.Number(Proto::kFilledTokensFieldNumber, block->filled_tokens);
        out.Number(Proto::kHoldersFieldNumber, block->holders);
      });
    }
  }

  // --- Sequences ---

  void operator()(const AddedSequence& result) const {
    using Proto = v1::AddSequenceResult;
    out.Number(Proto::kMatchedBelowTokensFieldNumber, result.matched_below_tokens);
    out.Number(Proto::kMatchedSecondaryTokensFieldNumber, result.matched_secondary_tokens);
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    Tables(Proto::kTablesFieldNumber, result.tables);
    out.Number(Proto::kMatchedTokensFieldNumber, result.matched_tokens);
  }
  void operator()(const ReservedTokens& result) const {
    using Proto = v1::ReserveTokensResult;
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    Tables(Proto::kAddedFieldNumber, result.added);
  }
  void operator()(const CommittedTokens& result) const {
    out.Number(v1::CommitTokensResult::kTokenCountFieldNumber, result.token_count);
  }
  void operator()(const AppendedTokens& result) const {
    using Proto = v1::AppendTokensResult;
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    out.Number(Proto::kTokenCountFieldNumber, result.token_count);
    Tables(Proto::kAddedFieldNumber, result.added);
  }
  void operator()(const AppendedStep& result) const {
    using Proto = v1::AppendStepResult;
    for (auto failure = result.failed.rbegin(); failure != result.failed.rend(); ++failure) {
      out.Message(Proto::kFailedFieldNumber, [&] {
        Error(v1::FailedAppend::kErrorFieldNumber, failure->status);
        out.Number(v1::FailedAppend::kIndexFieldNumber, failure->index);
      });
    }
    std::vector<GrowthRow> grown;
    std::vector<uint64_t> tickets;
    for (const AppendedStep::Growth& growth : result.grown) {
      grown.push_back({growth.index, growth.first_block, growth.blocks});
      tickets.push_back(growth.ready.value());
    }
    Rows(Proto::kReadyTicketsFieldNumber, tickets);
    Rows(Proto::kBlocksFieldNumber, result.blocks);
    Rows(Proto::kGrownFieldNumber, grown);
  }
  void operator()(const FreedSequence&) const {}
  void operator()(const DescribedSequence& result) const {
    using Proto = v1::DescribeSequenceResult;
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    out.Number(Proto::kLossesFieldNumber, result.losses);
    Tables(Proto::kTablesFieldNumber, result.tables);
    out.Number(Proto::kReservedTokensFieldNumber, result.reserved_tokens);
    out.Number(Proto::kComputedTokensFieldNumber, result.computed_tokens);
    out.Number(Proto::kTokenCountFieldNumber, result.token_count);
  }
  void operator()(const ForkedSequence& result) const {
    using Proto = v1::ForkSequenceResult;
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    out.Number(Proto::kLossesFieldNumber, result.losses);
    Tables(Proto::kTablesFieldNumber, result.tables);
    out.Number(Proto::kComputedTokensFieldNumber, result.computed_tokens);
    out.Number(Proto::kTokenCountFieldNumber, result.token_count);
  }
  void operator()(const TruncatedSequence& result) const {
    using Proto = v1::TruncateSequenceResult;
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    Tables(Proto::kTablesFieldNumber, result.tables);
    out.Number(Proto::kComputedTokensFieldNumber, result.computed_tokens);
    out.Number(Proto::kTokenCountFieldNumber, result.token_count);
  }

  // --- Prefixes ---

  void operator()(const MatchedPrefix& result) const {
    using Proto = v1::MatchPrefixResult;
    if (!result.tokens_by_tier.empty()) {
      out.Message(Proto::kTokensByTierFieldNumber, [&] {
        for (size_t tier = result.tokens_by_tier.size(); tier > 0; --tier) {
          out.Varint(result.tokens_by_tier[tier - 1]);
        }
      });
    }
    out.Number(Proto::kCachedTokensFieldNumber, result.cached_tokens);
    Rows(Proto::kBlocksFieldNumber, result.blocks);
    out.Number(Proto::kMatchedTokensFieldNumber, result.matched_tokens);
  }
  void operator()(const CapacityAnswer& result) const {
    using Proto = v1::WindowCapacity;
    for (auto window = result.windows.rbegin(); window != result.windows.rend(); ++window) {
      out.Message(v1::QueryCapacityResult::kWindowsFieldNumber, [&] {
        if (window->quota_left_blocks.has_value()) {
          out.Present(Proto::kQuotaLeftBlocksFieldNumber, *window->quota_left_blocks);
        }
        if (window->quota_blocks.has_value()) {
          out.Present(Proto::kQuotaBlocksFieldNumber, *window->quota_blocks);
        }
        out.Number(Proto::kAvailableBlocksFieldNumber, window->available_blocks);
        out.Number(Proto::kBlocksToCompletionFieldNumber, window->blocks_to_completion);
        out.Number(Proto::kBlocksNowFieldNumber, window->blocks_now);
        out.Number(Proto::kWindowSizeFieldNumber, WindowToProto(window->window));
      });
    }
    out.Number(v1::QueryCapacityResult::kMatchedTokensFieldNumber, result.matched_tokens);
  }
  void operator()(const OffloadedPrefix& result) const {
    using Proto = v1::OffloadPrefixResult;
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    out.Number(Proto::kBlocksFieldNumber, result.blocks);
  }
  void operator()(const PrefetchedPrefix& result) const {
    using Proto = v1::PrefetchPrefixResult;
    out.Number(Proto::kFetchTicketFieldNumber, result.fetch.value());
    out.Number(Proto::kFetchedBlocksFieldNumber, result.fetched_blocks);
    out.Number(Proto::kReadyTicketFieldNumber, result.ready.value());
    out.Number(Proto::kBlocksFieldNumber, result.blocks);
    out.Number(Proto::kMatchedTokensFieldNumber, result.matched_tokens);
  }
  void operator()(const InvalidatedPrefix& result) const {
    using Proto = v1::InvalidatePrefixResult;
    out.Number(Proto::kDurableTicketFieldNumber, result.durable.value());
    out.Number(Proto::kRemovedBlocksFieldNumber, result.removed_blocks);
  }
  void operator()(const RetentionSet& result) const {
    out.Number(v1::SetRetentionResult::kBlocksFieldNumber, result.blocks);
  }
  void operator()(const PinnedPrefix& result) const {
    using Proto = v1::PinPrefixResult;
    out.Number(Proto::kBlocksFieldNumber, result.blocks);
    out.Number(Proto::kPinnedTokensFieldNumber, result.pinned_tokens);
    out.Number(Proto::kPinIdFieldNumber, result.pin.value());
  }
  void operator()(const UnpinnedPrefix&) const {}
  void operator()(const ListedPins& result) const {
    using Proto = v1::ListPinsResult;
    out.Number(Proto::kBudgetBlocksFieldNumber, result.budget_blocks);
    out.Number(Proto::kPinnedBlocksFieldNumber, result.pinned_blocks);
    for (auto pin = result.pins.rbegin(); pin != result.pins.rend(); ++pin) {
      out.Embed(Proto::kPinsFieldNumber, PinToProto(*pin));
    }
  }

  // --- Others ---

  void operator()(const DescribedPools& result) const {
    for (auto pool = result.pools.rbegin(); pool != result.pools.rend(); ++pool) {
      v1::PoolMapping proto;
      PoolMappingToProto(*pool, &proto);
      out.Embed(v1::DescribePoolsResult::kPoolsFieldNumber, proto);
    }
  }
  void operator()(const WaitedForTicket& result) const {
    out.Number(v1::WaitForTicketResult::kCompletedTicketFieldNumber, result.completed.value());
  }

  void Error(int field, const absl::Status& status) const {
    out.Embed(field, ToProtoStatus(status));
  }

 private:
  template <class Row>
  void Rows(int field, const std::vector<Row>& rows) const {
    out.Text(field, RowBytes<Row>(rows));
  }
  void Tables(int field, const std::vector<BlockTable>& tables) const {
    using Proto = v1::BlockTable;
    for (auto table = tables.rbegin(); table != tables.rend(); ++table) {
      out.Message(field, [&] {
        out.Number(Proto::kFirstBlockFieldNumber, table->first_block);
        Rows(Proto::kBlocksFieldNumber, table->blocks);
        out.Number(Proto::kWindowSizeFieldNumber, WindowToProto(table->window));
      });
    }
  }
};

// The field of v1::OperationResult for each alternative of the variant.
struct FieldOf {
  using Proto = v1::OperationResult;
  int operator()(const AllocatedBlocks&) const { return Proto::kAllocateBlocksFieldNumber; }
  int operator()(const FreedBlocks&) const { return Proto::kFreeBlocksFieldNumber; }
  int operator()(const AddedSequence&) const { return Proto::kAddSequenceFieldNumber; }
  int operator()(const ReservedTokens&) const { return Proto::kReserveTokensFieldNumber; }
  int operator()(const CommittedTokens&) const { return Proto::kCommitTokensFieldNumber; }
  int operator()(const AppendedTokens&) const { return Proto::kAppendTokensFieldNumber; }
  int operator()(const FreedSequence&) const { return Proto::kFreeSequenceFieldNumber; }
  int operator()(const MatchedPrefix&) const { return Proto::kMatchPrefixFieldNumber; }
  int operator()(const DescribedPools&) const { return Proto::kDescribePoolsFieldNumber; }
  int operator()(const DescribedSequence&) const { return Proto::kDescribeSequenceFieldNumber; }
  int operator()(const ForkedSequence&) const { return Proto::kForkSequenceFieldNumber; }
  int operator()(const TruncatedSequence&) const { return Proto::kTruncateSequenceFieldNumber; }
  int operator()(const CapacityAnswer&) const { return Proto::kQueryCapacityFieldNumber; }
  int operator()(const OffloadedPrefix&) const { return Proto::kOffloadPrefixFieldNumber; }
  int operator()(const PrefetchedPrefix&) const { return Proto::kPrefetchPrefixFieldNumber; }
  int operator()(const PinnedPrefix&) const { return Proto::kPinPrefixFieldNumber; }
  int operator()(const UnpinnedPrefix&) const { return Proto::kUnpinPrefixFieldNumber; }
  int operator()(const ListedPins&) const { return Proto::kListPinsFieldNumber; }
  int operator()(const InvalidatedPrefix&) const { return Proto::kInvalidatePrefixFieldNumber; }
  int operator()(const RetentionSet&) const { return Proto::kSetRetentionFieldNumber; }
  int operator()(const WaitedForTicket&) const { return Proto::kWaitForTicketFieldNumber; }
  int operator()(const AppendedStep&) const { return Proto::kAppendStepFieldNumber; }
  int operator()(const FilledBlocks&) const { return Proto::kFillBlocksFieldNumber; }
  int operator()(const DescribedBlocks&) const { return Proto::kDescribeBlocksFieldNumber; }
};

}  // namespace

void AnswerWriter::Add(const absl::StatusOr<OperationResult>& result) {
  char memory[512];
  BackwardWriter out(memory);
  const FieldWriter fields{out};
  out.Message(v1::BatchResult::kResultsFieldNumber, [&] {
    if (!result.ok()) {
      fields.Error(v1::OperationResult::kErrorFieldNumber, result.status());
    } else {
      out.Message(std::visit(FieldOf{}, *result), [&] { std::visit(fields, *result); });
    }
  });
  bytes_.append(out.data(), out.size());
}

std::string AnswerWriter::End(const BatchResult& state) {
  using Proto = v1::BatchResult;
  char memory[512];
  BackwardWriter out(memory);
  out.Number(Proto::kCompletedBackupTicketFieldNumber, state.completed_backup.value());
  out.Number(Proto::kCompletedFetchTicketFieldNumber, state.completed_fetch.value());
  for (auto lost = state.shortened.rbegin(); lost != state.shortened.rend(); ++lost) {
    out.Message(Proto::kShortenedFieldNumber, [&] {
      out.Number(v1::ShortenedSequence::kMustBeFreedFieldNumber, lost->must_be_freed ? 1 : 0);
      out.Number(v1::ShortenedSequence::kLossesFieldNumber, lost->losses);
      out.Number(v1::ShortenedSequence::kComputedTokensFieldNumber, lost->computed_tokens);
      out.Number(v1::ShortenedSequence::kSequenceIdFieldNumber, lost->sequence.value());
    });
  }
  out.Number(Proto::kCompletedTicketFieldNumber, state.completed.value());
  out.Number(Proto::kRevisionFieldNumber, state.revision.value());
  bytes_.append(out.data(), out.size());
  return std::move(bytes_);
}

absl::StatusOr<OperationResult> OperationResultFromProto(const v1::OperationResult& proto) {
  if (proto.has_error()) {
    absl::Status error = StatusFromProto(proto.error());
    if (error.ok()) return absl::InternalError("the daemon sent an error with the code OK");
    return error;
  }
  switch (proto.result_case()) {
    case v1::OperationResult::kAllocateBlocks:
      return Decode(proto.allocate_blocks());
    case v1::OperationResult::kFreeBlocks:
      return Decode(proto.free_blocks());
    case v1::OperationResult::kAddSequence:
      return Decode(proto.add_sequence());
    case v1::OperationResult::kReserveTokens:
      return Decode(proto.reserve_tokens());
    case v1::OperationResult::kCommitTokens:
      return Decode(proto.commit_tokens());
    case v1::OperationResult::kAppendTokens:
      return Decode(proto.append_tokens());
    case v1::OperationResult::kFreeSequence:
      return Decode(proto.free_sequence());
    case v1::OperationResult::kMatchPrefix:
      return Decode(proto.match_prefix());
    case v1::OperationResult::kDescribePools:
      return Decode(proto.describe_pools());
    case v1::OperationResult::kDescribeSequence:
      return Decode(proto.describe_sequence());
    case v1::OperationResult::kForkSequence:
      return Decode(proto.fork_sequence());
    case v1::OperationResult::kTruncateSequence:
      return Decode(proto.truncate_sequence());
    case v1::OperationResult::kQueryCapacity:
      return Decode(proto.query_capacity());
    case v1::OperationResult::kOffloadPrefix:
      return Decode(proto.offload_prefix());
    case v1::OperationResult::kPrefetchPrefix:
      return Decode(proto.prefetch_prefix());
    case v1::OperationResult::kPinPrefix:
      return Decode(proto.pin_prefix());
    case v1::OperationResult::kUnpinPrefix:
      return Decode(proto.unpin_prefix());
    case v1::OperationResult::kListPins:
      return Decode(proto.list_pins());
    case v1::OperationResult::kInvalidatePrefix:
      return Decode(proto.invalidate_prefix());
    case v1::OperationResult::kSetRetention:
      return Decode(proto.set_retention());
    case v1::OperationResult::kWaitForTicket:
      return Decode(proto.wait_for_ticket());
    case v1::OperationResult::kAppendStep:
      return Decode(proto.append_step());
    case v1::OperationResult::kFillBlocks:
      return Decode(proto.fill_blocks());
    case v1::OperationResult::kDescribeBlocks:
      return Decode(proto.describe_blocks());
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
    batch.shortened.push_back(ShortenedFromProto(sequence));
  }
  return batch;
}

}  // namespace pagoda
