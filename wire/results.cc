// Each result has two functions, Encode and Decode, as in operations.cc.
#include "wire/results.h"

#include <cstdint>
#include <utility>
#include <variant>
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

void TablesToProto(const std::vector<BlockTable>& tables, TableProtos* out) {
  for (const BlockTable& table : tables) {
    v1::BlockTable* proto = out->Add();
    proto->set_window_size(WindowToProto(table.window));
    proto->set_first_block(table.first_block);
    proto->set_blocks(RowsToBytes<BlockHandle>(table.blocks));
  }
}

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

void Encode(const AllocatedBlocks& result, v1::AllocateBlocksResult* out) {
  out->set_blocks(RowsToBytes<BlockHandle>(result.blocks));
  out->set_ready_ticket(result.ready.value());
}

absl::StatusOr<OperationResult> Decode(const v1::AllocateBlocksResult& proto) {
  auto blocks = RowsFromBytes<BlockHandle>(proto.blocks());
  if (!blocks.has_value()) return NoRows();
  return AllocatedBlocks{*std::move(blocks), Ticket(proto.ready_ticket())};
}

void Encode(const FreedBlocks&, v1::FreeBlocksResult*) {}
FreedBlocks Decode(const v1::FreeBlocksResult&) { return {}; }

void Encode(const FilledBlocks&, v1::FillBlocksResult*) {}
FilledBlocks Decode(const v1::FillBlocksResult&) { return {}; }

void Encode(const DescribedBlocks& result, v1::DescribeBlocksResult* out) {
  out->mutable_blocks()->Reserve(static_cast<int>(result.blocks.size()));
  for (const BlockMetadata& block : result.blocks) {
    v1::BlockState* state = out->add_blocks();
    state->set_holders(block.holders);
    state->set_filled_tokens(block.filled_tokens);
    state->set_finalized(block.finalized);
    state->set_cached(block.cached);
  }
}

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

void Encode(const AddedSequence& result, v1::AddSequenceResult* out) {
  out->set_matched_tokens(result.matched_tokens);
  out->set_matched_secondary_tokens(result.matched_secondary_tokens);
  out->set_matched_below_tokens(result.matched_below_tokens);
  TablesToProto(result.tables, out->mutable_tables());
  out->set_ready_ticket(result.ready.value());
}

absl::StatusOr<OperationResult> Decode(const v1::AddSequenceResult& proto) {
  return WithTables(proto.tables(), [&](std::vector<BlockTable> tables) {
    return AddedSequence{.matched_tokens = proto.matched_tokens(),
                         .matched_secondary_tokens = proto.matched_secondary_tokens(),
                         .matched_below_tokens = proto.matched_below_tokens(),
                         .tables = std::move(tables),
                         .ready = Ticket(proto.ready_ticket())};
  });
}

void Encode(const ReservedTokens& result, v1::ReserveTokensResult* out) {
  TablesToProto(result.added, out->mutable_added());
  out->set_ready_ticket(result.ready.value());
}

absl::StatusOr<OperationResult> Decode(const v1::ReserveTokensResult& proto) {
  return WithTables(proto.added(), [&](std::vector<BlockTable> tables) {
    return ReservedTokens{std::move(tables), Ticket(proto.ready_ticket())};
  });
}

void Encode(const CommittedTokens& result, v1::CommitTokensResult* out) {
  out->set_token_count(result.token_count);
}

CommittedTokens Decode(const v1::CommitTokensResult& proto) { return {proto.token_count()}; }

void Encode(const AppendedTokens& result, v1::AppendTokensResult* out) {
  TablesToProto(result.added, out->mutable_added());
  out->set_token_count(result.token_count);
  out->set_ready_ticket(result.ready.value());
}

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

void Encode(const AppendedStep& result, v1::AppendStepResult* out) {
  std::vector<GrowthRow> grown;
  grown.reserve(result.grown.size());
  out->mutable_ready_tickets()->Reserve(static_cast<int>(result.grown.size()));
  for (const AppendedStep::Growth& growth : result.grown) {
    grown.push_back({growth.index, growth.first_block, growth.blocks});
    out->add_ready_tickets(growth.ready.value());
  }
  out->set_grown(RowsToBytes<GrowthRow>(grown));
  out->set_blocks(RowsToBytes<BlockHandle>(result.blocks));
  for (const AppendedStep::Failure& failure : result.failed) {
    v1::FailedAppend* proto = out->add_failed();
    proto->set_index(failure.index);
    *proto->mutable_error() = ToProtoStatus(failure.status);
  }
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

void Encode(const FreedSequence&, v1::FreeSequenceResult*) {}
FreedSequence Decode(const v1::FreeSequenceResult&) { return {}; }

void Encode(const DescribedSequence& result, v1::DescribeSequenceResult* out) {
  out->set_token_count(result.token_count);
  out->set_computed_tokens(result.computed_tokens);
  out->set_reserved_tokens(result.reserved_tokens);
  out->set_losses(result.losses);
  TablesToProto(result.tables, out->mutable_tables());
  out->set_ready_ticket(result.ready.value());
}

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

void Encode(const ForkedSequence& result, v1::ForkSequenceResult* out) {
  out->set_token_count(result.token_count);
  out->set_computed_tokens(result.computed_tokens);
  out->set_losses(result.losses);
  TablesToProto(result.tables, out->mutable_tables());
  out->set_ready_ticket(result.ready.value());
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

void Encode(const TruncatedSequence& result, v1::TruncateSequenceResult* out) {
  out->set_token_count(result.token_count);
  out->set_computed_tokens(result.computed_tokens);
  TablesToProto(result.tables, out->mutable_tables());
  out->set_ready_ticket(result.ready.value());
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

void Encode(const MatchedPrefix& result, v1::MatchPrefixResult* out) {
  out->set_matched_tokens(result.matched_tokens);
  out->set_blocks(RowsToBytes<BlockHandle>(result.blocks));
  out->set_cached_tokens(result.cached_tokens);
  out->mutable_tokens_by_tier()->Add(result.tokens_by_tier.begin(), result.tokens_by_tier.end());
}

absl::StatusOr<OperationResult> Decode(const v1::MatchPrefixResult& proto) {
  auto blocks = RowsFromBytes<BlockHandle>(proto.blocks());
  if (!blocks.has_value()) return NoRows();
  return MatchedPrefix{
      .matched_tokens = proto.matched_tokens(),
      .blocks = *std::move(blocks),
      .cached_tokens = proto.cached_tokens(),
      .tokens_by_tier = {proto.tokens_by_tier().begin(), proto.tokens_by_tier().end()}};
}

void Encode(const CapacityAnswer& result, v1::QueryCapacityResult* out) {
  out->set_matched_tokens(result.matched_tokens);
  for (const WindowCapacity& window : result.windows) {
    v1::WindowCapacity* proto = out->add_windows();
    proto->set_window_size(WindowToProto(window.window));
    proto->set_blocks_now(window.blocks_now);
    proto->set_blocks_to_completion(window.blocks_to_completion);
    proto->set_available_blocks(window.available_blocks);
    if (window.quota_blocks.has_value()) proto->set_quota_blocks(*window.quota_blocks);
    if (window.quota_left_blocks.has_value()) {
      proto->set_quota_left_blocks(*window.quota_left_blocks);
    }
  }
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

void Encode(const OffloadedPrefix& result, v1::OffloadPrefixResult* out) {
  out->set_blocks(result.blocks);
  out->set_ready_ticket(result.ready.value());
}

OffloadedPrefix Decode(const v1::OffloadPrefixResult& proto) {
  return {proto.blocks(), Ticket(proto.ready_ticket())};
}

void Encode(const PrefetchedPrefix& result, v1::PrefetchPrefixResult* out) {
  out->set_matched_tokens(result.matched_tokens);
  out->set_blocks(result.blocks);
  out->set_ready_ticket(result.ready.value());
  out->set_fetched_blocks(result.fetched_blocks);
  out->set_fetch_ticket(result.fetch.value());
}

PrefetchedPrefix Decode(const v1::PrefetchPrefixResult& proto) {
  return {.matched_tokens = proto.matched_tokens(),
          .blocks = proto.blocks(),
          .ready = Ticket(proto.ready_ticket()),
          .fetched_blocks = proto.fetched_blocks(),
          .fetch = Ticket(proto.fetch_ticket())};
}

void Encode(const InvalidatedPrefix& result, v1::InvalidatePrefixResult* out) {
  out->set_removed_blocks(result.removed_blocks);
  out->set_durable_ticket(result.durable.value());
}

InvalidatedPrefix Decode(const v1::InvalidatePrefixResult& proto) {
  return {proto.removed_blocks(), Ticket(proto.durable_ticket())};
}

void Encode(const RetentionSet& result, v1::SetRetentionResult* out) {
  out->set_blocks(result.blocks);
}

RetentionSet Decode(const v1::SetRetentionResult& proto) { return {proto.blocks()}; }

// --- Pins ---

void Encode(const PinnedPrefix& result, v1::PinPrefixResult* out) {
  out->set_pin_id(result.pin.value());
  out->set_pinned_tokens(result.pinned_tokens);
  out->set_blocks(result.blocks);
}

PinnedPrefix Decode(const v1::PinPrefixResult& proto) {
  return {PinId(proto.pin_id()), proto.pinned_tokens(), proto.blocks()};
}

void Encode(const UnpinnedPrefix&, v1::UnpinPrefixResult*) {}
UnpinnedPrefix Decode(const v1::UnpinPrefixResult&) { return {}; }

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

void Encode(const ListedPins& result, v1::ListPinsResult* out) {
  for (const PinInfo& pin : result.pins) PinToProto(pin, out->add_pins());
  out->set_pinned_blocks(result.pinned_blocks);
  out->set_budget_blocks(result.budget_blocks);
}

ListedPins Decode(const v1::ListPinsResult& proto) {
  ListedPins listed{
      .pins = {}, .pinned_blocks = proto.pinned_blocks(), .budget_blocks = proto.budget_blocks()};
  for (const v1::PinInfo& pin : proto.pins()) listed.pins.push_back(PinFromProto(pin));
  return listed;
}

// --- Others ---

void Encode(const DescribedPools& result, v1::DescribePoolsResult* out) {
  for (const PoolMapping& mapping : result.pools) PoolMappingToProto(mapping, out->add_pools());
}

absl::StatusOr<OperationResult> Decode(const v1::DescribePoolsResult& proto) {
  DescribedPools described;
  for (const v1::PoolMapping& pool : proto.pools()) {
    absl::StatusOr<PoolMapping> mapping = PoolMappingFromProto(pool);
    if (!mapping.ok()) return mapping.status();
    described.pools.push_back(*std::move(mapping));
  }
  return described;
}

void Encode(const WaitedForTicket& result, v1::WaitForTicketResult* out) {
  out->set_completed_ticket(result.completed.value());
}

WaitedForTicket Decode(const v1::WaitForTicketResult& proto) {
  return {Ticket(proto.completed_ticket())};
}

void ShortenedToProto(const ShortenedSequence& sequence, v1::ShortenedSequence* out) {
  out->set_sequence_id(sequence.sequence.value());
  out->set_computed_tokens(sequence.computed_tokens);
  out->set_losses(sequence.losses);
  out->set_must_be_freed(sequence.must_be_freed);
}

ShortenedSequence ShortenedFromProto(const v1::ShortenedSequence& proto) {
  return {.sequence = SequenceId(proto.sequence_id()),
          .computed_tokens = proto.computed_tokens(),
          .losses = proto.losses(),
          .must_be_freed = proto.must_be_freed()};
}

// --- The oneof ---

// The member of the wire's oneof that belongs to each result.
struct ResultMemberOf {
  v1::OperationResult* out;

  auto* operator()(const AllocatedBlocks&) const { return out->mutable_allocate_blocks(); }
  auto* operator()(const FreedBlocks&) const { return out->mutable_free_blocks(); }
  auto* operator()(const AddedSequence&) const { return out->mutable_add_sequence(); }
  auto* operator()(const ReservedTokens&) const { return out->mutable_reserve_tokens(); }
  auto* operator()(const CommittedTokens&) const { return out->mutable_commit_tokens(); }
  auto* operator()(const AppendedTokens&) const { return out->mutable_append_tokens(); }
  auto* operator()(const FreedSequence&) const { return out->mutable_free_sequence(); }
  auto* operator()(const MatchedPrefix&) const { return out->mutable_match_prefix(); }
  auto* operator()(const DescribedPools&) const { return out->mutable_describe_pools(); }
  auto* operator()(const DescribedSequence&) const { return out->mutable_describe_sequence(); }
  auto* operator()(const ForkedSequence&) const { return out->mutable_fork_sequence(); }
  auto* operator()(const TruncatedSequence&) const { return out->mutable_truncate_sequence(); }
  auto* operator()(const CapacityAnswer&) const { return out->mutable_query_capacity(); }
  auto* operator()(const OffloadedPrefix&) const { return out->mutable_offload_prefix(); }
  auto* operator()(const PrefetchedPrefix&) const { return out->mutable_prefetch_prefix(); }
  auto* operator()(const PinnedPrefix&) const { return out->mutable_pin_prefix(); }
  auto* operator()(const UnpinnedPrefix&) const { return out->mutable_unpin_prefix(); }
  auto* operator()(const ListedPins&) const { return out->mutable_list_pins(); }
  auto* operator()(const InvalidatedPrefix&) const { return out->mutable_invalidate_prefix(); }
  auto* operator()(const RetentionSet&) const { return out->mutable_set_retention(); }
  auto* operator()(const WaitedForTicket&) const { return out->mutable_wait_for_ticket(); }
  auto* operator()(const AppendedStep&) const { return out->mutable_append_step(); }
  auto* operator()(const FilledBlocks&) const { return out->mutable_fill_blocks(); }
  auto* operator()(const DescribedBlocks&) const { return out->mutable_describe_blocks(); }
};

}  // namespace

void OperationResultToProto(const absl::StatusOr<OperationResult>& result,
                            v1::OperationResult* out) {
  if (!result.ok()) {
    *out->mutable_error() = ToProtoStatus(result.status());
    return;
  }
  std::visit([out](const auto& content) { Encode(content, ResultMemberOf{out}(content)); },
             *result);
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

void BatchStateToProto(const BatchResult& batch, v1::BatchResult* out) {
  out->set_revision(batch.revision.value());
  out->set_completed_ticket(batch.completed.value());
  out->set_completed_fetch_ticket(batch.completed_fetch.value());
  out->set_completed_backup_ticket(batch.completed_backup.value());
  out->clear_shortened();
  for (const ShortenedSequence& sequence : batch.shortened) {
    ShortenedToProto(sequence, out->add_shortened());
  }
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
