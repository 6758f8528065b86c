// BlockManager::Execute: calls the part for an operation value, and turns its answer into a value.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/block_manager_parts.h"

namespace pagoda {
namespace {

// The entries of each of the sequence's tables, starting at `first_block`.
std::vector<BlockTable> TablesFrom(const CacheInfo& info, const Sequence& sequence,
                                   uint32_t first_block) {
  std::vector<BlockTable> tables;
  for (size_t w = 0; w < sequence.windows.size(); ++w) {
    const std::vector<BlockHandle>& table = sequence.windows[w].table;
    tables.push_back({.window = info.windows[w].window,
                      .first_block = first_block,
                      .blocks = {table.begin() + first_block, table.end()}});
  }
  return tables;
}

// One overload for each operation.
class Executor {
 public:
  using Result = absl::StatusOr<OperationResult>;

  Executor(BlockManager& manager, const std::vector<PoolMapping>& pools, SessionId session,
           absl::Time now, const absl::Status* content_check)
      : manager_(manager),
        pools_(pools),
        session_(session),
        now_(now),
        content_check_(content_check) {}

  Result operator()(const AllocateBlocks& op) {
    // Refused here, before memory is allocated for an absurd count.
    uint32_t most = 0;
    for (const CacheInfo::Window& window : manager_.info().windows) {
      if (window.window == op.window) most = window.blocks_in(kPrimaryTier);
    }
    if (most != 0 && op.count > most) {
      // Expiries apply even if the call is refused.
      manager_.raw_blocks().AllocateBlocks(session_, op.window, {}, now_).status().IgnoreError();
      return MakeError(Reason::kInvalidCount,
                       absl::StrCat(op.count, " blocks requested; 1 to ", most, " are possible"));
    }
    AllocatedBlocks result;
    result.blocks.resize(most == 0 ? 0 : op.count);
    const absl::StatusOr<Ticket> ready = manager_.raw_blocks().AllocateBlocks(
        session_, op.window, absl::MakeSpan(result.blocks), now_);
    if (!ready.ok()) return ready.status();
    result.ready = *ready;
    return result;
  }

  Result operator()(const FreeBlocks& op) {
    return Answer(manager_.raw_blocks().FreeBlocks(session_, op.window, op.blocks, now_),
                  FreedBlocks{});
  }

  Result operator()(const FillBlocks& op) {
    return Answer(manager_.raw_blocks().FillBlocks(session_, op.window, op.blocks), FilledBlocks{});
  }

  Result operator()(const DescribeBlocks& op) {
    absl::StatusOr<std::vector<BlockMetadata>> blocks =
        manager_.raw_blocks().DescribeBlocks(session_, op.window, op.blocks);
    if (!blocks.ok()) return blocks.status();
    return DescribedBlocks{.blocks = *std::move(blocks)};
  }

  Result operator()(const AddSequence& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    const absl::StatusOr<SequenceAdded> added = manager_.sequences().AddSequence(
        session_, op.sequence,
        {.name_space = **name_space,
         .tokens = op.tokens,
         .reserved_tokens = op.reserved_tokens,
         .extra_token_ids = op.extra_token_ids,
         .multimodal_items = op.multimodal_items,
         .retention = op.retention.empty() ? nullptr : &op.retention,
         .tenant = op.tenant,
         .whole_blocks_only = op.whole_blocks_only,
         .keys = op.keys,
         .uncounted = op.uncounted,
         .content_check = content_check_},
        now_);
    if (!added.ok()) return added.status();
    return AddedSequence{.matched_tokens = added->matched_tokens,
                         .matched_lower_tokens = added->matched_lower_tokens,
                         .matched_below_tokens = added->matched_below_tokens,
                         .tables = TablesFrom(manager_.info(), *added->sequence, 0),
                         .ready = added->ready};
  }

  Result operator()(const ReserveTokens& op) {
    const absl::StatusOr<SequenceGrowth> growth =
        manager_.sequences().ReserveTokens(session_, op.sequence, op.count, now_);
    if (!growth.ok()) return growth.status();
    return ReservedTokens{
        .added = TablesFrom(manager_.info(), *growth->sequence, growth->first_block),
        .ready = growth->ready};
  }

  Result operator()(const CommitTokens& op) {
    const absl::StatusOr<uint32_t> token_count = manager_.sequences().CommitTokens(
        session_, op.sequence, op.tokens, op.computed_tokens, now_, op.known_losses, op.keys);
    if (!token_count.ok()) return token_count.status();
    return CommittedTokens{.token_count = *token_count};
  }

  Result operator()(const AppendTokens& op) {
    const absl::StatusOr<SequenceGrowth> growth = manager_.sequences().AppendTokens(
        session_, op.sequence, op.tokens, op.computed_tokens, now_, op.known_losses, op.keys);
    if (!growth.ok()) return growth.status();
    const Sequence& sequence = *growth->sequence;
    return AppendedTokens{.added = TablesFrom(manager_.info(), sequence, growth->first_block),
                          .token_count = sequence.token_count,
                          .ready = growth->ready};
  }

  Result operator()(const AppendStep& op) {
    return Typed(manager_.sequences().AppendStep(session_, op, now_));
  }

  Result operator()(const ForkSequence& op) {
    const absl::StatusOr<SequenceForked> forked =
        manager_.sequences().ForkSequence(session_, op.sequence, op.new_sequence, now_);
    if (!forked.ok()) return forked.status();
    const Sequence& sequence = *forked->sequence;
    return ForkedSequence{.token_count = sequence.token_count,
                          .computed_tokens = sequence.computed_tokens,
                          .losses = sequence.losses,
                          .tables = TablesFrom(manager_.info(), sequence, 0),
                          .ready = forked->ready};
  }

  Result operator()(const TruncateSequence& op) {
    const absl::StatusOr<SequenceGrowth> growth =
        manager_.sequences().TruncateSequence(session_, op.sequence, op.token_count, now_);
    if (!growth.ok()) return growth.status();
    const Sequence& sequence = *growth->sequence;
    return TruncatedSequence{.token_count = sequence.token_count,
                             .computed_tokens = sequence.computed_tokens,
                             .tables = TablesFrom(manager_.info(), sequence, growth->first_block),
                             .ready = growth->ready};
  }

  Result operator()(const FreeSequence& op) {
    return Answer(manager_.sequences().FreeSequence(session_, op.sequence, now_), FreedSequence{});
  }

  Result operator()(const MatchPrefix& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    const SequencePrompt prompt = PrefixOf(**name_space, op);
    if (absl::Status status = CheckPrompt(prompt); !status.ok()) return status;
    return manager_.prefixes().Describe(prompt);
  }

  Result operator()(const QueryCapacity& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    return Typed(manager_.prefixes().QueryCapacity(session_, op, **name_space, content_check_));
  }

  Result operator()(const OffloadPrefix& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    absl::Status own = manager_.tenants().CheckOwn(manager_.TenantOf(session_), **name_space);
    if (!own.ok()) return own;
    return Typed(manager_.prefixes().Offload(PrefixOf(**name_space, op), now_));
  }

  Result operator()(const PrefetchPrefix& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    if (op.deadline <= absl::ZeroDuration()) {
      return MakeError(Reason::kInvalidArgument, "the deadline must be in the future");
    }
    return Typed(manager_.prefixes().Prefetch(
        PrefixOf(**name_space, op), now_, {.target = op.target, .deadline = now_ + op.deadline}));
  }

  Result operator()(const PinPrefix& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    return Typed(manager_.prefixes().Pin(session_, PrefixOf(**name_space, op), op.lease, now_));
  }

  Result operator()(const UnpinPrefix& op) {
    return Answer(manager_.prefixes().Unpin(op.pin, now_, manager_.TenantOf(session_)),
                  UnpinnedPrefix{});
  }

  Result operator()(const ListPins&) {
    return manager_.prefixes().ListPins(manager_.TenantOf(session_));
  }

  Result operator()(const InvalidatePrefix& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    absl::Status own = manager_.tenants().CheckOwn(manager_.TenantOf(session_), **name_space);
    if (!own.ok()) return own;
    Ticket durable;
    const absl::StatusOr<uint64_t> removed =
        manager_.prefixes().Invalidate(PrefixOf(**name_space, op), now_, &durable);
    if (!removed.ok()) return removed.status();
    return InvalidatedPrefix{.removed_blocks = *removed, .durable = durable};
  }

  Result operator()(const SetRetention& op) {
    const absl::StatusOr<const NamespaceKey*> name_space = Confine(op.name_space);
    if (!name_space.ok()) return name_space.status();
    const absl::StatusOr<uint32_t> blocks = manager_.prefixes().SetRetention(
        PrefixOf(**name_space, op), op.retention, now_, manager_.TenantOf(session_));
    if (!blocks.ok()) return blocks.status();
    return RetentionSet{.blocks = *blocks};
  }

  Result operator()(const WaitForTicket& op) {
    if (op.ticket > manager_.last_ticket(op.lane)) {
      return MakeError(Reason::kUnknownTicket,
                       absl::StrCat("ticket ", op.ticket.value(), " is above the last one, ",
                                    manager_.last_ticket(op.lane).value()));
    }
    if (op.ticket > manager_.completed_ticket(op.lane)) {
      return MakeError(Reason::kWaitTimeout, absl::StrCat("the copies up to ticket ",
                                                          op.ticket.value(), " are not done"));
    }
    return WaitedForTicket{.completed = manager_.completed_ticket(op.lane)};
  }

  Result operator()(const DescribePools&) { return DescribedPools{.pools = pools_}; }

  Result operator()(const DescribeSequence& op) {
    const absl::StatusOr<const Sequence*> found =
        manager_.sequences().FindSequence(session_, op.sequence);
    if (!found.ok()) return found.status();
    return DescribedSequence{.token_count = (*found)->token_count,
                             .computed_tokens = (*found)->computed_tokens,
                             .reserved_tokens = (*found)->reserved_tokens,
                             .losses = (*found)->losses,
                             .tables = TablesFrom(manager_.info(), **found, 0),
                             .ready = manager_.sequences().ReadyOf(**found)};
  }

 private:
  // The namespace that the session means; valid until the next call.
  absl::StatusOr<const NamespaceKey*> Confine(const NamespaceKey& asked) {
    if (!manager_.tenants().any()) return &asked;
    absl::StatusOr<NamespaceKey> meant = manager_.Confine(session_, asked);
    if (!meant.ok()) return meant.status();
    confined_ = *std::move(meant);
    return &confined_;
  }

  // The prefix that an operation names. Refers to the operation.
  template <class Op>
  SequencePrompt PrefixOf(const NamespaceKey& name_space, const Op& op) const {
    return {.name_space = name_space,
            .tokens = op.tokens,
            .extra_token_ids = op.extra_token_ids,
            .multimodal_items = op.multimodal_items,
            .keys = op.keys,
            .content_check = content_check_};
  }

  static Result Answer(absl::Status status, OperationResult result) {
    if (!status.ok()) return status;
    return result;
  }

  template <class T>
  static Result Typed(absl::StatusOr<T> result) {
    if (!result.ok()) return result.status();
    return *std::move(result);
  }

  BlockManager& manager_;
  const std::vector<PoolMapping>& pools_;
  const SessionId session_;
  const absl::Time now_;
  const absl::Status* const content_check_;  // May be null.
  NamespaceKey confined_;
};

}  // namespace

absl::StatusOr<OperationResult> BlockManager::Execute(SessionId session, const Operation& operation,
                                                      absl::Time now,
                                                      const absl::Status* content_check) {
  ++parts().operations.run[operation.index()];
  absl::StatusOr<OperationResult> result = std::visit(
      Executor(*this, parts().options.pool_mappings, session, now, content_check), operation);
  const auto count_failure = [&](const absl::Status& status) {
    ++parts().operations.failed[{TenantOf(session), ReasonOf(status)}];
  };
  if (!result.ok()) {
    count_failure(result.status());
  } else if (const auto* step = std::get_if<AppendedStep>(&*result)) {
    for (const AppendedStep::Failure& failure : step->failed) count_failure(failure.status);
  }
  return result;
}

}  // namespace pagoda
