// A sequence's way through the cache.
#ifndef PAGODA_ENGINE_SCHEDULE_SEQUENCE_RUN_H_
#define PAGODA_ENGINE_SCHEDULE_SEQUENCE_RUN_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/generate.h"
#include "engine/schedule/step_batch.h"
#include "manager/operation.h"

namespace pagoda {

// Its tokens are known before their KV is there: computed() of them have it. A step names to the
// cache what the step before chose, declares what that one has computed, and takes the room that it
// will write to itself. So the last token that was chosen never gets any KV if nothing follows.
// Thread-compatible. Takers that it puts into a batch refer to it: it stays where it is until the
// batch has run.
//
// Invariants, between batches, while it is open
// 1. published_ <= computed() <= tokens().size(), and published_ <= named_ <= tokens().size().
// 2. The cache knows the first named_ tokens, and of published_ that they are computed.
// 3. The tables have room for room_ tokens; what is computed lies within.
class SequenceRun {
 public:
  struct Windows {
    std::vector<WindowSize> sizes;  // Of the model, in the order of ModelInput::windows.
    uint32_t tokens_per_block = 0;
  };

  // Of `request`, which says whose it is; that and `windows` outlive it.
  SequenceRun(const GenerateRequest& request, const Windows& windows, std::vector<TokenId> tokens)
      : request_(request), windows_(windows), tokens_(std::move(tokens)) {}
  SequenceRun(const SequenceRun&) = delete;
  SequenceRun& operator=(const SequenceRun&) = delete;

  const std::vector<TokenId>& tokens() const { return tokens_; }
  uint32_t computed() const { return computed_; }
  uint32_t uncomputed() const { return static_cast<uint32_t>(tokens_.size()) - computed_; }
  // Whether the session has, or may have, the sequence.
  bool is_open() const { return open_; }
  // Nothing that it reads or writes is under a copy once this ticket is completed.
  Ticket ready() const { return ready_; }
  // The first error of the operations since the last Open, Fork or Advance.
  const absl::Status& status() const { return status_; }
  // What the cache had of the tokens when it was opened, and what came up for it.
  uint32_t matched() const { return matched_; }
  uint32_t matched_secondary() const { return matched_secondary_; }

  // --- Operations ---

  // Opens it under `id` with all tokens, and takes room for the first `reserved_tokens`, or for
  // those that match, where these are more.
  void Open(SequenceId id, uint32_t reserved_tokens, StepBatch& batch);
  // Declares what is computed, so that forks have it.
  void Publish(StepBatch& batch);
  // Opens it as a fork of `origin`, which has all but this one's last token and has just put its
  // Publish into the batch.
  void Fork(SequenceId id, const SequenceRun& origin, StepBatch& batch);
  // Names and declares what is new, and takes room for `num_tokens` more than are computed and for
  // `num_draft_tokens` behind them.
  void Advance(uint32_t num_tokens, uint32_t num_draft_tokens, StepBatch& batch);
  // Ends it; what is computed stays cached. It may be opened again, when the batch has run.
  void Close(StepBatch& batch);
  // The session is gone, and the sequence with it.
  void Forget();

  // Takes over what a copy has lost. False where the sequence can only be closed.
  bool Shorten(const ShortenedSequence& shortened);
  // Of the last Open or Fork.
  SequenceId id() const { return id_; }
  bool was_opened() const { return id_ != SequenceId(); }

  // --- The model ---

  // How many of the next tokens can be written where the tables say.
  uint32_t reserved_left() const { return reserved_ - std::min(reserved_, computed_); }
  // The slots of its blocks by window; kNoSlot where a sliding window had passed when the cache
  // told.
  absl::Span<const std::vector<SlotIndex>> tables() const { return tables_; }
  // The KV of as many tokens more is complete.
  void Computed(uint32_t num_tokens) { computed_ += num_tokens; }
  // The token that was chosen behind all others.
  void Push(TokenId token) { tokens_.push_back(token); }
  // DraftTokens of this step were not chosen: the room that they were computed in holds nothing.
  void RefuseDraftTokens() { reservation_is_stale_ = true; }

 private:
  void Commit(uint32_t end, StepBatch& batch);
  void Append(StepBatch& batch);
  void Truncate(StepBatch& batch);
  void Reserve(uint32_t count, StepBatch& batch);
  void Take(absl::Span<const BlockTable> tables, Ticket ready);
  void Note(const absl::Status& status) { status_.Update(status); }

  const GenerateRequest& request_;
  const Windows& windows_;
  SequenceId id_;
  std::vector<TokenId> tokens_;
  std::vector<std::vector<SlotIndex>> tables_;  // By window.
  uint32_t named_ = 0;
  uint32_t published_ = 0;
  uint32_t computed_ = 0;
  uint32_t reserved_ = 0;
  uint32_t losses_ = 0;  // Of the sequence, as far as the cache has told.
  uint32_t matched_ = 0;
  uint32_t matched_secondary_ = 0;
  bool open_ = false;
  bool reservation_is_stale_ = false;
  Ticket ready_;
  absl::Status status_;
};

// Puts what the cache told of a sequence's tables behind what is known of them, by window in the
// order of `windows`. Windows that are not among those are passed over.
void TakeTables(absl::Span<const BlockTable> told, absl::Span<const WindowSize> windows,
                std::vector<std::vector<SlotIndex>>& tables);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_SEQUENCE_RUN_H_
