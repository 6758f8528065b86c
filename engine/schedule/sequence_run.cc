#include "engine/schedule/sequence_run.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace pagoda {

void SequenceRun::Open(SequenceId id, uint32_t reserved_tokens, Lookup lookup, StepBatch& batch) {
  PAGODA_CHECK(!open_, "a sequence is opened once");
  id_ = id;
  open_ = true;
  status_ = absl::OkStatus();
  named_ = static_cast<uint32_t>(tokens_.size());
  reserved_tokens = std::min(reserved_tokens, named_);
  AddSequence add{.sequence = id_,
                  .name_space = request_.name_space,
                  .tokens = tokens_,
                  .reserved_tokens = reserved_tokens,
                  .tenant = request_.tenant,
                  .uncounted = lookup == Lookup::kUncounted};
  batch.Add(std::move(add), [this, reserved_tokens](absl::StatusOr<OperationResult> result) {
    if (!result.ok()) {
      open_ = false;
      return Note(result.status());
    }
    const auto& added = std::get<AddedSequence>(*result);
    PAGODA_CHECK(added.matched_tokens < tokens_.size(), "the last token is computed");
    matched_ = computed_ = published_ = added.matched_tokens;
    matched_lower_ = added.matched_lower_tokens;
    reserved_ = std::max(reserved_tokens, matched_);
    Take(added.tables, added.ready);
  });
}

void SequenceRun::Publish(StepBatch& batch) {
  if (computed_ > published_) Commit(named_, batch);
}

void SequenceRun::Fork(SequenceId id, const SequenceRun& origin, StepBatch& batch) {
  PAGODA_CHECK(!open_ && origin.open_, "a sequence is forked from an open one");
  id_ = id;
  open_ = true;
  status_ = absl::OkStatus();
  // The state that the origin will have when the fork is made.
  named_ = computed_ = published_ = reserved_ = origin.computed_;
  batch.Add(ForkSequence{.sequence = origin.id_, .new_sequence = id_},
            [this, foreseen = computed_](absl::StatusOr<OperationResult> result) {
              if (!result.ok()) {
                Forget();
                return Note(result.status());
              }
              const auto& forked = std::get<ForkedSequence>(*result);
              // An Append of the same batch already builds on the predicted state.
              PAGODA_CHECK(forked.token_count == foreseen && forked.computed_tokens == foreseen,
                           "a fork has what its origin had");
              losses_ = forked.losses;
              Take(forked.tables, Ticket());
            });
}

void SequenceRun::Advance(uint32_t num_tokens, uint32_t num_draft_tokens, StepBatch& batch) {
  status_ = absl::OkStatus();
  if (named_ < tokens_.size()) {
    Append(batch);
  } else if (computed_ > published_) {
    Commit(named_, batch);
  }
  if (std::exchange(reservation_is_stale_, false)) Truncate(batch);
  const uint32_t wanted = computed_ + num_tokens + num_draft_tokens;
  if (wanted > reserved_) Reserve(wanted - reserved_, batch);
}

void SequenceRun::Close(StepBatch& batch) {
  PAGODA_CHECK(open_, "an open sequence is closed");
  if (computed_ > published_) Commit(std::max(named_, computed_), batch);
  batch.Add(FreeSequence{.sequence = id_}, [](absl::StatusOr<OperationResult>) {});
  Forget();
}

void SequenceRun::Forget() {
  open_ = reservation_is_stale_ = false;
  named_ = published_ = computed_ = reserved_ = losses_ = 0;
  ready_ = Ticket();
  tables_.clear();
}

bool SequenceRun::Shorten(const ShortenedSequence& shortened) {
  if (shortened.losses == losses_) return true;
  losses_ = shortened.losses;
  computed_ = published_ = shortened.computed_tokens;
  return !shortened.must_be_freed;
}

// Each operation counts as done when it is added, because the next one of the batch builds on it. A
// refusal takes that back.

void SequenceRun::Commit(uint32_t end, StepBatch& batch) {
  CommitTokens commit{.sequence = id_,
                      .tokens = {tokens_.begin() + named_, tokens_.begin() + end},
                      .computed_tokens = computed_,
                      .known_losses = losses_};
  batch.Add(std::move(commit), [this, named = std::exchange(named_, end),
                                published = std::exchange(published_, computed_)](
                                   absl::StatusOr<OperationResult> result) {
    if (result.ok() || !open_) return;
    named_ = named;
    published_ = published;
    Note(result.status());
  });
}

void SequenceRun::Append(StepBatch& batch) {
  AppendTokens append{.sequence = id_,
                      .tokens = {tokens_.begin() + named_, tokens_.end()},
                      .computed_tokens = computed_,
                      .known_losses = losses_};
  const auto end = static_cast<uint32_t>(tokens_.size());
  const uint32_t growth = end > reserved_ ? end - reserved_ : 0;
  reserved_ += growth;
  batch.AddAppend(std::move(append), [this, growth, named = std::exchange(named_, end),
                                      published = std::exchange(published_, computed_)](
                                         absl::StatusOr<StepBatch::Appended> appended) {
    if (!appended.ok()) {
      named_ = named;
      published_ = published;
      reserved_ -= growth;
      return Note(appended.status());
    }
    Take(appended->added, appended->ready);
  });
}

// Drops only reserved capacity; the committed tokens stay.
void SequenceRun::Truncate(StepBatch& batch) {
  const uint32_t dropped = reserved_ - named_;
  reserved_ -= dropped;
  batch.Add(TruncateSequence{.sequence = id_, .token_count = named_},
            [this, dropped](absl::StatusOr<OperationResult> result) {
              if (!result.ok()) {
                reserved_ += dropped;
                return Note(result.status());
              }
              const auto& truncated = std::get<TruncatedSequence>(*result);
              Take(truncated.tables, truncated.ready);
            });
}

void SequenceRun::Reserve(uint32_t count, StepBatch& batch) {
  reserved_ += count;
  batch.Add(ReserveTokens{.sequence = id_, .count = count},
            [this, count](absl::StatusOr<OperationResult> result) {
              if (!result.ok()) {
                reserved_ -= count;
                return Note(result.status());
              }
              const auto& reserved = std::get<ReservedTokens>(*result);
              Take(reserved.added, reserved.ready);
            });
}

void SequenceRun::Take(absl::Span<const BlockTable> tables, Ticket ready) {
  TakeTables(tables, windows_.sizes, tables_);
  ready_ = std::max(ready_, ready);
}

void TakeTables(absl::Span<const BlockTable> told, absl::Span<const WindowSize> windows,
                std::vector<std::vector<SlotIndex>>& tables) {
  tables.resize(windows.size());
  for (const BlockTable& table : told) {
    const auto window = std::find(windows.begin(), windows.end(), table.window);
    if (window == windows.end()) continue;
    std::vector<SlotIndex>& slots = tables[static_cast<size_t>(window - windows.begin())];
    slots.resize(table.first_block);
    for (const BlockHandle& block : table.blocks) slots.push_back(block.slot);
  }
}

}  // namespace pagoda
