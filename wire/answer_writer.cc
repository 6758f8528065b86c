#include "wire/answer_writer.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/check.h"
#include "pagoda/v1/cache.pb.h"
#include "wire/bytes/backward_writer.h"
#include "wire/cache_info.h"
#include "wire/errors.h"
#include "wire/rows.h"
#include "wire/vocabulary.h"

namespace pagoda {
namespace {

static_assert(sizeof(BlockHandle) == 3 * sizeof(uint32_t), "a handle is a row of the wire");

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
    out.Number(Proto::kMatchedLowerTokensFieldNumber, result.matched_lower_tokens);
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
    grown.reserve(result.grown.size());
    tickets.reserve(result.grown.size());
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

v1::OperationResult OperationResultToProto(const absl::StatusOr<OperationResult>& result) {
  AnswerWriter writer;
  writer.Add(result);
  v1::BatchResult answer;
  PAGODA_CHECK(answer.ParseFromString(writer.End({})) && answer.results_size() == 1,
               "an answer has a result for each operation");
  return std::move(*answer.mutable_results(0));
}

}  // namespace pagoda
