// BlockManager::Execute: from an operation's value to the method of the same name, and from its
// answer to a value.
#include <utility>

#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "pools/error.h"

namespace pagoda {
namespace {

// The last `count` blocks of each of the sequence's tables.
std::vector<BlockTable> TableEnds(const CacheInfo& info, const Sequence& sequence, uint32_t count) {
  std::vector<BlockTable> ends;
  for (size_t w = 0; w < sequence.windows.size(); ++w) {
    const std::vector<BlockHandle>& table = sequence.windows[w].table;
    ends.push_back(
        {.window = info.windows[w].window, .blocks = {table.end() - count, table.end()}});
  }
  return ends;
}

std::vector<BlockTable> WholeTables(const CacheInfo& info, const Sequence& sequence) {
  return TableEnds(info, sequence, static_cast<uint32_t>(sequence.windows.front().table.size()));
}

// One overload an operation.
class Executor {
 public:
  using Result = absl::StatusOr<OperationResult>;

  Executor(BlockManager& manager, const std::vector<PoolMapping>& pools, SessionId session,
           absl::Time now)
      : manager_(manager), pools_(pools), session_(session), now_(now) {}

  Result operator()(const AllocateBlocks& op) {
    // Refused here, before memory is taken for an absurd count.
    uint32_t most = 0;
    for (const CacheInfo::Window& window : manager_.info().windows) {
      if (window.window == op.window) most = window.primary_blocks;
    }
    if (most != 0 && op.count > most) {
      return MakeError(Reason::kInvalidCount,
                       absl::StrCat(op.count, " blocks asked for; 1 to ", most, " can be had"));
    }
    AllocatedBlocks result;
    result.blocks.resize(most == 0 ? 0 : op.count);
    absl::Status status =
        manager_.AllocateBlocks(session_, op.window, absl::MakeSpan(result.blocks), now_);
    return Answer(std::move(status), std::move(result));
  }

  Result operator()(const FreeBlocks& op) {
    return Answer(manager_.FreeBlocks(session_, op.window, op.blocks, now_), FreedBlocks{});
  }

  Result operator()(const AddSequence& op) {
    const absl::StatusOr<uint32_t> matched =
        manager_.AddSequence(session_, op.sequence, op.name_space, op.tokens, op.room_tokens, now_);
    if (!matched.ok()) return matched.status();
    return AddedSequence{.matched_tokens = *matched,
                         .tables = WholeTables(manager_.info(), Find(op.sequence))};
  }

  Result operator()(const ReserveTokens& op) {
    const absl::StatusOr<uint32_t> added =
        manager_.ReserveTokens(session_, op.sequence, op.count, now_);
    if (!added.ok()) return added.status();
    return ReservedTokens{.added = TableEnds(manager_.info(), Find(op.sequence), *added)};
  }

  Result operator()(const CommitTokens& op) {
    const absl::StatusOr<uint32_t> token_count =
        manager_.CommitTokens(session_, op.sequence, op.tokens, op.computed_tokens, now_);
    if (!token_count.ok()) return token_count.status();
    return CommittedTokens{.token_count = *token_count};
  }

  Result operator()(const AppendTokens& op) {
    const absl::StatusOr<uint32_t> added =
        manager_.AppendTokens(session_, op.sequence, op.tokens, op.computed_tokens, now_);
    if (!added.ok()) return added.status();
    const Sequence& sequence = Find(op.sequence);
    return AppendedTokens{.added = TableEnds(manager_.info(), sequence, *added),
                          .token_count = sequence.token_count};
  }

  Result operator()(const FreeSequence& op) {
    return Answer(manager_.FreeSequence(session_, op.sequence, now_), FreedSequence{});
  }

  Result operator()(const MatchPrefix& op) {
    MatchedPrefix result;
    result.matched_tokens = manager_.MatchPrefix(op.name_space, op.tokens, &result.blocks);
    return result;
  }

  Result operator()(const DescribePools&) { return DescribedPools{.pools = pools_}; }

  Result operator()(const DescribeSequence& op) {
    const absl::StatusOr<const Sequence*> found = manager_.FindSequence(session_, op.sequence);
    if (!found.ok()) return found.status();
    return DescribedSequence{.token_count = (*found)->token_count,
                             .computed_tokens = (*found)->computed_tokens,
                             .room_tokens = (*found)->room_tokens,
                             .tables = WholeTables(manager_.info(), **found)};
  }

 private:
  static Result Answer(absl::Status status, OperationResult result) {
    if (!status.ok()) return status;
    return result;
  }

  const Sequence& Find(SequenceId sequence) const {
    return **manager_.FindSequence(session_, sequence);
  }

  BlockManager& manager_;
  const std::vector<PoolMapping>& pools_;
  const SessionId session_;
  const absl::Time now_;
};

}  // namespace

absl::StatusOr<OperationResult> BlockManager::Execute(SessionId session, const Operation& operation,
                                                      absl::Time now) {
  return std::visit(Executor(*this, options_.pool_mappings, session, now), operation);
}

}  // namespace pagoda
