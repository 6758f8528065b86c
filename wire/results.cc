// Each result has a function Decode. AnswerWriter encodes it.
#include "wire/results.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
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
                         .matched_lower_tokens = proto.matched_lower_tokens(),
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

}  // namespace

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
