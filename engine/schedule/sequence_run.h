// How one sequence uses the cache.
#ifndef PAGODA_ENGINE_SCHEDULE_SEQUENCE_RUN_H_
#define PAGODA_ENGINE_SCHEDULE_SEQUENCE_RUN_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/request/generate.h"
#include "engine/schedule/step_batch.h"
#include "manager/api/operation.h"

namespace pagoda {

// Tokens are known before their KV is computed: the first computed() of them have KV. A step
// commits to the cache the tokens that the step before chose, declares the KV that it computed, and
// reserves capacity for the tokens that it will write itself. So the last chosen token gets no KV
// if nothing follows it. Thread-compatible. The takers that it puts into a batch refer to it, so it
// does not move until the batch has run.
//
// Invariants, between batches, while it is open
// 1. published_ <= computed() <= tokens().size(), and published_ <= named_ <= tokens().size().
// 2. The cache knows the first named_ tokens, and knows that the first published_ are computed.
// 3. The tables cover reserved_ tokens, and computed() <= reserved_.
class SequenceRun {
 public:
  struct Windows {
    std::vector<WindowSize> sizes;  // The model's, in the order of ModelInput::windows.
    uint32_t tokens_per_block = 0;
  };

  // A sequence of `request`, which names its namespace and tenant. `request` and `windows` outlive
  // it.
  SequenceRun(const GenerateRequest& request, const Windows& windows, std::vector<TokenId> tokens)
      : request_(request), windows_(windows), tokens_(std::move(tokens)) {}
  SequenceRun(const SequenceRun&) = delete;
  SequenceRun& operator=(const SequenceRun&) = delete;

  const std::vector<TokenId>& tokens() const { return tokens_; }
  uint32_t computed() const { return computed_; }
  uint32_t uncomputed() const { return static_cast<uint32_t>(tokens_.size()) - computed_; }
  // Whether the session has, or could have, the sequence.
  bool is_open() const { return open_; }
  // Once this ticket is completed, no copy is using blocks that it reads or writes.
  Ticket ready() const { return ready_; }
  // The first error of the operations since the last Open, Fork or Advance.
  const absl::Status& status() const { return status_; }
  // The tokens that matched when it was opened, and the matched tokens that were onboarded for it.
  uint32_t matched() const { return matched_; }
  uint32_t matched_lower() const { return matched_lower_; }

  // --- Operations ---

  // Whether the cache counts the prompt in its hit rates: only for the first sequence of a request.
  enum class Lookup : uint8_t { kCounted, kUncounted };
  // Opens it under `id` with all tokens. Reserves capacity for the first `reserved_tokens`, or for
  // the matched ones if these are more.
  void Open(SequenceId id, uint32_t reserved_tokens, Lookup lookup, StepBatch& batch);
  // Declares the computed tokens, so that forks have them.
  void Publish(StepBatch& batch);
  // Opens it as a fork of `origin`. REQUIRES: the tokens that `origin` has computed are those that
  // it has named, and the first ones of this sequence, which has more; `origin` has just put its
  // Publish into the batch.
  void Fork(SequenceId id, const SequenceRun& origin, StepBatch& batch);
  // Commits the new tokens and declares the computed ones. Reserves capacity for `num_tokens`
  // beyond the computed ones, and for `num_draft_tokens` behind them.
  void Advance(uint32_t num_tokens, uint32_t num_draft_tokens, StepBatch& batch);
  // A refusal has been heeded.
  void ClearStatus() { status_ = absl::OkStatus(); }
  // Ends it; the computed KV stays cached. It can be opened again after the batch has run.
  void Close(StepBatch& batch);
  // The session is gone, and the sequence with it.
  void Forget();

  // Takes over the loss of KV by a failed copy. False if the sequence can only be closed.
  bool Shorten(const ShortenedSequence& shortened);
  // The id of the last Open or Fork.
  SequenceId id() const { return id_; }
  bool was_opened() const { return id_ != SequenceId(); }

  // --- The model ---

  // How many of the next tokens have slots in the tables.
  uint32_t reserved_left() const { return reserved_ - std::min(reserved_, computed_); }
  // The slots of its blocks by window; kNoSlot for blocks that a sliding window had passed when the
  // cache answered.
  absl::Span<const std::vector<SlotIndex>> tables() const { return tables_; }
  // The KV of `num_tokens` more tokens is complete.
  void Computed(uint32_t num_tokens) { computed_ += num_tokens; }
  // The token chosen behind all others.
  void Push(TokenId token) { tokens_.push_back(token); }
  // Some draft tokens of this step were rejected, so the capacity reserved for them is empty.
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
  uint32_t losses_ = 0;  // The losses of the sequence, as last reported by the cache.
  uint32_t matched_ = 0;
  uint32_t matched_lower_ = 0;
  bool open_ = false;
  bool reservation_is_stale_ = false;
  Ticket ready_;
  absl::Status status_;
};

// Merges tables that the cache reported into the known ones, by window in the order of `windows`.
// Skips windows that are not in `windows`.
void TakeTables(absl::Span<const BlockTable> told, absl::Span<const WindowSize> windows,
                std::vector<std::vector<SlotIndex>>& tables);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_SEQUENCE_RUN_H_
