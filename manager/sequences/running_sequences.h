// The running sequences, and the operations that change them.
#ifndef PAGODA_MANAGER_SEQUENCES_RUNNING_SEQUENCES_H_
#define PAGODA_MANAGER_SEQUENCES_RUNNING_SEQUENCES_H_

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

  // Each call that takes the time is an operation of its own (operation_runner.h).

  // Opens a sequence: matches the longest cached prefix that is valid in every window, and reserves
  // capacity. At least the last token is not matched. Matched blocks in lower tiers are
  // onboarded. If a block matches in part, its first tokens are copied into a fresh block. The
  // sequence takes the block over in place (rule 8) if it is a tail that matches whole, or if there
  // is no space for a copy. A block taken over keeps its retention unless the prompt's retention
  // names it.
  //
  // In a keyed namespace the prompt has keys of whole blocks, and all of them can match. Every
  // length of such a sequence is a whole number of blocks (WHOLE_BLOCKS_ONLY), here and in the
  // calls below.
  //
  // Cost: O(tokens). Errors: SEQUENCE_EXISTS, KEYS_AND_TOKENS, INVALID_ARGUMENT (a salt or tenant
  // that is too long; extra ids or items that do not fit the tokens; a retention that
  // CheckRetention refuses), INVALID_COUNT (no tokens, or more than the capacity, the quota or
  // SequenceAccounts can ever give), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED, TOO_MANY_SEQUENCES,
  // SEQUENCE_BYTES_EXHAUSTED; those of TenantTable::Charged.
  absl::StatusOr<SequenceAdded> AddSequence(SessionId session, SequenceId sequence,
                                            const SequencePrompt& prompt, absl::Time now);

  // Reserves capacity for `count` more tokens. A tail that a fork shares is copied first. Cost: O(1
  // + new blocks). Errors: UNKNOWN_SEQUENCE, INVALID_COUNT (0, or more than the capacity or the
  // tenant's quota can ever give), BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED,
  // SEQUENCE_BYTES_EXHAUSTED.
  absl::StatusOr<Growth> ReserveTokens(SessionId session, SequenceId sequence, uint32_t count,
                                       absl::Time now);

  // Names the next tokens, for which capacity must be reserved. Declares the KV of the first
  // `computed_tokens` tokens complete and visible (0: unchanged). Afterwards the blocks that became
  // full and computed are in the tree. A sliding window has released the blocks that it passed
  // (rule 9), except the last published one. In a keyed sequence `keys` name the next blocks.
  // Returns the sequence's tokens. Cost: O(tokens + committed blocks). Errors: UNKNOWN_SEQUENCE,
  // RESERVATION_EXCEEDED, COMPUTED_BACKWARDS, COMPUTED_BEYOND_TOKENS, KEYS_AND_TOKENS (tokens for a
  // keyed sequence, or keys for another), WHOLE_BLOCKS_ONLY, KV_LOST (fewer `known_losses` than
  // there are, see ShortenedSequence; or the sequence can only be freed), INVALID_ARGUMENT (more
  // `known_losses` than there are).
  absl::StatusOr<uint32_t> CommitTokens(SessionId session, SequenceId sequence,
                                        absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                        absl::Time now, uint32_t known_losses = 0,
                                        absl::Span<const ClientKey> keys = {});

  // ReserveTokens for the missing tokens, then CommitTokens; all or nothing. Errors: those of the
  // two.
  absl::StatusOr<Growth> AppendTokens(SessionId session, SequenceId sequence,
                                      absl::Span<const TokenId> tokens, uint32_t computed_tokens,
                                      absl::Time now, uint32_t known_losses = 0,
                                      absl::Span<const ClientKey> keys = {});

  // AppendTokens for each sequence of a decode step. Cost: as AppendTokens, without the fixed cost
  // of an operation. Errors, after which nothing has changed: INVALID_ARGUMENT (no sequence, too
  // many, or arrays that do not fit together).
  absl::StatusOr<AppendedStep> AppendStep(SessionId session, const pagoda::AppendStep& step,
                                          absl::Time now);

  // Opens `new_sequence` with the tokens and computed tokens of `sequence` (beams, parallel
  // samples). The two share all blocks with computed tokens. ReserveTokens takes capacity for more,
  // and copies a shared tail. The data beside the tables is shared and immutable, so only the first
  // fork costs anything for each token that is not computed. Cost: O(blocks). Errors:
  // UNKNOWN_SEQUENCE, SEQUENCE_EXISTS, KV_LOST (it can only be freed), INVALID_COUNT (more than
  // SequenceAccounts can ever give), TOO_MANY_SEQUENCES, SEQUENCE_BYTES_EXHAUSTED.
  absl::StatusOr<SequenceForked> ForkSequence(SessionId session, SequenceId sequence,
                                              SequenceId new_sequence, absl::Time now);

  // Drops all tokens but the first `token_count`, and the capacity reserved behind them. Published
  // blocks stay cached. If the cut goes through a block that something else uses, the block is
  // copied first. A block that only this sequence uses is reused in place, and leaves the cache
  // (Removed, truncated). Errors: UNKNOWN_SEQUENCE, INVALID_COUNT (0, or above the sequence's
  // tokens), WINDOW_PASSED, BLOCKS_EXHAUSTED, TENANT_QUOTA_EXCEEDED.
  absl::StatusOr<Growth> TruncateSequence(SessionId session, SequenceId sequence,
                                          uint32_t token_count, absl::Time now);

  // Ends a sequence and frees its reserved capacity. Its computed tail is cached too, unless a
  // block of the primary tier begins with it. That block then becomes as recent as the sequence's
  // own blocks, and keeps the higher priority of the two.
  //
  // Whenever a block enters the tree, the evictable tails that it begins with leave (Removed, taken
  // over). The block keeps the highest of their priorities and its own, unless the retention of its
  // sequence names it. Errors: UNKNOWN_SEQUENCE.
  absl::Status FreeSequence(SessionId session, SequenceId sequence, absl::Time now);

  // The running sequence; valid until the next call. Errors: UNKNOWN_SEQUENCE.
  absl::StatusOr<const Sequence*> FindSequence(SessionId session, SequenceId sequence) const;
  // The entries [first_block, first_block + max_blocks) of its table in the window with this index,
  // for a reader of its KV. Cost: O(max_blocks). Errors: UNKNOWN_SEQUENCE.
  absl::StatusOr<SequenceKv> ReadSequence(SessionId session, SequenceId sequence,
                                          uint32_t window_index, uint32_t first_block,
                                          uint32_t max_blocks) const;
  // The ticket that its slots wait for; 0: none. Cost: O(blocks) while copies run.
  Ticket ReadyOf(const Sequence& sequence) const;
  // The session's sequences with losses that no commit has named yet.
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

}  // namespace pagoda

#endif  // PAGODA_MANAGER_SEQUENCES_RUNNING_SEQUENCES_H_
