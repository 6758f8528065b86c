// The running sequences, and the operations that change them.
#ifndef PAGODA_MANAGER_SEQUENCES_RUNNING_SEQUENCES_H_
#define PAGODA_MANAGER_SEQUENCES_RUNNING_SEQUENCES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "manager/accounts/sequence_accounts.h"
#include "manager/accounts/session_table.h"
#include "manager/accounts/tenants.h"
#include "manager/api/operation.h"
#include "manager/api/sequence_calls.h"
#include "manager/sequences/capacity_checks.h"
#include "manager/sequences/operation_runner.h"
#include "manager/sequences/prefix_matcher.h"
#include "manager/services/copy_tracker.h"
#include "manager/services/operation_scope.h"
#include "manager/tree/sequence.h"
#include "manager/window/prefix_match.h"
#include "manager/window/window_block_manager.h"
#include "manager/window/window_sequences.h"
#include "manager/window/window_set.h"
#include "manager/words/ids.h"
#include "pools/types.h"

namespace pagoda {

// Owns the sequences. Their sessions list them by name. Thread-compatible.
//
// Invariants
// 1. An operation checks every window and the accounts before it changes anything. So it succeeds
// in all windows or leaves no trace.
// 2. A sequence has blocks in every window. Its tenant is charged for what the sequence keeps
// beside its blocks.
class RunningSequences {
 public:
  using Growth = SequenceGrowth;

  // All references outlive the sequences.
  RunningSequences(const TenantTable& tenants, const CopyTracker& copies, const WindowSet& windows,
                   const CapacityChecks& reserved, const PrefixMatcher& matcher,
                   SequenceAccounts& accounts, SessionTable& sessions, OperationRunner& runner)
      : tokens_per_block_(windows.tokens_per_block()),
        tenants_(tenants),
        copies_(copies),
        windows_(windows),
        capacity_(reserved),
        matcher_(matcher),
        accounts_(accounts),
        sessions_(sessions),
        runner_(runner) {}
  RunningSequences(const RunningSequences&) = delete;
  RunningSequences& operator=(const RunningSequences&) = delete;

  // --- As BlockManager's methods of the same names ---

  absl::StatusOr<SequenceAdded> AddSequence(SessionId session, SequenceId sequence,
                                            const SequencePrompt& prompt, absl::Time now);
  absl::StatusOr<Growth> ReserveTokens(SessionId session, SequenceId sequence, uint32_t count,
                                       absl::Time now);
  absl::StatusOr<uint32_t> CommitTokens(SessionId session, SequenceId sequence,
                                        absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                        absl::Time now, uint32_t known_losses,
                                        absl::Span<const ClientKey> keys);
  // REQUIRES: `op` has just begun.
  absl::StatusOr<Growth> AppendTokens(OperationScope& op, SessionId session, SequenceId sequence,
                                      absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                      uint32_t known_losses, absl::Span<const ClientKey> keys);
  // (running_sequences_steps.cc) REQUIRES: an operation has just begun at `now`.
  absl::StatusOr<AppendedStep> AppendStep(SessionId session, const pagoda::AppendStep& step,
                                          absl::Time now);
  absl::Status FreeSequence(SessionId session, SequenceId sequence, absl::Time now);
  // (running_sequences_forks.cc)
  absl::StatusOr<SequenceForked> ForkSequence(SessionId session, SequenceId sequence,
                                              SequenceId new_sequence, absl::Time now);
  absl::StatusOr<Growth> TruncateSequence(SessionId session, SequenceId sequence,
                                          uint32_t token_count, absl::Time now);

  absl::StatusOr<const Sequence*> FindSequence(SessionId session, SequenceId sequence) const;
  Ticket ReadyOf(const Sequence& sequence) const;
  absl::StatusOr<SequenceKv> ReadSequence(SessionId session, SequenceId sequence,
                                          uint32_t window_index, uint32_t first_block,
                                          uint32_t max_blocks) const;
  std::vector<ShortenedSequence> Shortened(SessionId session);

  // --- For other parts ---

  // REQUIRES: the sequence exists.
  const Sequence& Get(const SequenceKey& key) const { return *sequences_.at(key); }
  // Sequences that hold the lost bytes have to compute them again. Cost: O(their tables).
  void Shorten(const CopyTracker::Lost& lost);
  // Releases the sequence's blocks and forgets the sequence. The caller takes it off its session's
  // list.
  void End(OperationScope& op, SequenceKey key, WindowSequences::ComputedTail tail);

  size_t size() const { return sequences_.size(); }
  // For tests: add the holders of the window with this index, and the costs of each tenant's
  // sequences. Stop the process if a sequence is broken.
  void AddHolders(size_t window_index, WindowBlockManager::Holders* holders) const;
  struct Costs {
    std::vector<uint64_t> sequences, bytes;  // By TenantId.
  };
  void AddCosts(Costs* costs) const;

 private:
  using Match = PrefixMatcher::Match;
  using Demand = MatchDemand;

  // --- The steps of AddSequence. Only the last two change anything. ---

  struct Opening;
  // Whether the prompt can be that of a new sequence.
  absl::Status CheckNew(const OperationScope& op, const SequenceKey& key,
                        const SequencePrompt& prompt) const;
  // Finds the longest match with which the sequence fits into every window.
  absl::Status Fit(const OperationScope& op, Opening& opening) const;
  // Whether the matched and the reserved blocks fit into every window now.
  absl::Status FitsNow(const OperationScope& op, Opening& opening) const;
  // Whether the tenant can be charged for what the sequence keeps beside its blocks.
  absl::Status CheckCosts(const OperationScope& op, Opening& opening) const;
  std::unique_ptr<Sequence> MakeSequence(const OperationScope& op, const SequenceKey& key,
                                         const Opening& opening);
  // Gives the sequence its blocks in every window, and writes the prompt into them.
  void TakeBlocks(OperationScope& op, const Opening& opening, Sequence& added);

  absl::StatusOr<Sequence*> RequireSequence(SessionId session, SequenceId sequence);
  static absl::Status SequenceCannotGoOn();
  // An append that takes blocks, publishes blocks, or is refused.
  absl::StatusOr<Growth> AppendBlocks(OperationScope& op, SessionId session, Sequence& growing,
                                      absl::Span<const TokenId> tokens,
                                      absl::Span<const ClientKey> keys, uint32_t computed_tokens,
                                      uint32_t known_losses);
  // Whether the sequence takes content of this kind (tokens or keys), and computed no more than it.
  absl::Status CheckKind(const Sequence& sequence, absl::Span<const TokenId> tokens,
                         absl::Span<const ClientKey> keys, uint32_t computed_tokens) const;
  // Whether `tokens` is a valid length for a keyed sequence.
  absl::Status CheckWhole(bool keyed, const char* what, uint64_t tokens) const;
  absl::Status CheckCommit(const Sequence& sequence, uint64_t token_count, uint64_t reserved_tokens,
                           uint32_t computed_tokens, uint32_t known_losses) const;
  bool StaysInBlock(const Sequence& sequence, size_t new_tokens, uint32_t computed_tokens,
                    uint32_t known_losses) const;
  uint32_t TableSize(uint64_t reserved_tokens) const {
    return tokens_per_block_.BlocksFor(reserved_tokens);
  }
  void AppendInBlock(Sequence& sequence, absl::Span<const TokenId> tokens,
                     uint32_t computed_tokens) const;
  Growth Grow(OperationScope& op, Sequence& sequence, uint32_t reserved_tokens,
              uint32_t computed_tokens);
  void Place(Sequence& sequence, const ContentSpan& content);
  // Writes tokens that were named before they had a place, as far as the reserved capacity goes.
  void PlaceWaiting(Sequence& sequence, uint32_t old_reserved_tokens);
  void Write(Sequence& sequence, uint32_t position, const ContentSpan& content);
  void Commit(OperationScope& op, Sequence& sequence, const ContentSpan& content,
              uint32_t computed_tokens);
  // (running_sequences_forks.cc) Whether `named` has all tokens from `begin` on.
  bool NamesFrom(const Sequence& sequence, uint32_t begin) const;
  void ShareNamedTokens(Sequence& parent, Sequence& child);

  const TokensPerBlock tokens_per_block_;
  const TenantTable& tenants_;
  const CopyTracker& copies_;
  const WindowSet& windows_;
  const CapacityChecks& capacity_;
  const PrefixMatcher& matcher_;
  SequenceAccounts& accounts_;
  SessionTable& sessions_;
  OperationRunner& runner_;
  absl::flat_hash_map<SequenceKey, std::unique_ptr<Sequence>> sequences_;
  uint64_t last_kv_version_ = 0;
};

// --- Appends: each sequence of a decode step runs one, so they are inline in the facade ---

// Whether an append takes, publishes and copies no block, and cannot fail.
inline bool RunningSequences::StaysInBlock(const Sequence& sequence, size_t new_tokens,
                                           uint32_t computed_tokens, uint32_t known_losses) const {
  const uint64_t token_count = uint64_t{sequence.token_count} + new_tokens;
  const uint64_t places = uint64_t{TableSize(sequence.reserved_tokens)} * tokens_per_block_.value();
  if (token_count > places || sequence.borrows_tail || sequence.has_waiting_tokens()) return false;
  if (sequence.must_be_freed || sequence.keyed || windows_.any_slides()) return false;
  if (known_losses != sequence.losses || known_losses != sequence.known_losses) return false;
  return computed_tokens == 0 ||
         (computed_tokens >= sequence.computed_tokens && computed_tokens <= token_count &&
          tokens_per_block_.BlockForToken(computed_tokens) ==
              tokens_per_block_.BlockForToken(sequence.computed_tokens));
}

// REQUIRES: StaysInBlock.
inline void RunningSequences::AppendInBlock(Sequence& sequence, absl::Span<const TokenId> tokens,
                                            uint32_t computed_tokens) const {
  for (const auto& window : windows_)
    window->sequences().WriteTokens(sequence, sequence.token_count, tokens);
  sequence.token_count += static_cast<uint32_t>(tokens.size());
  sequence.reserved_tokens = std::max(sequence.reserved_tokens, sequence.token_count);
  sequence.computed_tokens = std::max(sequence.computed_tokens, computed_tokens);
}

[[gnu::always_inline]] inline absl::StatusOr<RunningSequences::Growth>
RunningSequences::AppendTokens(OperationScope& op, SessionId session, SequenceId sequence,
                               absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                               uint32_t known_losses, absl::Span<const ClientKey> keys) {
  const auto found = sequences_.find({session, sequence});
  if (found == sequences_.end()) return FindSequence(session, sequence).status();
  Sequence& growing = *found->second;
  // Usually the token's place is in the last block, and only that token is written.
  if (keys.empty() && StaysInBlock(growing, tokens.size(), computed_tokens, known_losses)) {
    AppendInBlock(growing, tokens, computed_tokens);
    return Growth{.first_block = TableSize(growing.reserved_tokens), .sequence = &growing};
  }
  return AppendBlocks(op, session, growing, tokens, keys, computed_tokens, known_losses);
}

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_RUNNING_SEQUENCES_H_
