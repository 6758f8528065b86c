// The part of RunningSequences that forks and truncates sequences.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/sequences/running_sequences.h"

namespace pagoda {

absl::StatusOr<SequenceForked> RunningSequences::ForkSequence(SessionId session,
                                                              SequenceId sequence,
                                                              SequenceId new_sequence,
                                                              absl::Time now) {
  OperationScope op = runner_.Begin(session, now);
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  Sequence& parent = **found;
  if (parent.must_be_freed) return SequenceCannotGoOn();
  if (sequences_.contains({session, new_sequence})) {
    return MakeError(Reason::kSequenceExists,
                     absl::StrCat("sequence ", new_sequence.value(), " exists already"));
  }
  const bool shares_names = NamesFrom(parent, parent.computed_tokens);
  const uint64_t own_bytes =
      capacity_.SequenceBytes() + capacity_.TableBytes(TableSize(parent.computed_tokens));
  const uint64_t named_bytes =
      ContentBytes(parent.token_count - parent.computed_tokens, parent.keyed, tokens_per_block_);
  const uint64_t bytes = own_bytes + (shares_names ? 0 : named_bytes);
  if (absl::Status status = accounts_.Check(
          parent.tenant,
          {.sequences = 1, .bytes = bytes, .all_bytes = parent.kept_bytes() + bytes});
      !status.ok()) {
    return status;
  }
  parent.forked_tokens = std::max(parent.forked_tokens, parent.computed_tokens);
  auto child = std::make_unique<Sequence>();
  child->kv_version = ++last_kv_version_;
  child->key = {session, new_sequence};
  child->forked_tokens = parent.computed_tokens;
  child->token_count = parent.token_count;
  child->computed_tokens = child->reserved_tokens = parent.computed_tokens;
  child->tenant = parent.tenant;
  child->keyed = parent.keyed;
  child->charge = SequenceAccounts::Charge(&accounts_, parent.tenant, 1, own_bytes);
  child->prompt_tokens = parent.prompt_tokens;
  child->matched_tokens = parent.matched_tokens;
  child->uncounted = parent.uncounted;
  // The child inherits the losses: its client may not know of them yet.
  child->losses = parent.losses;
  child->known_losses = parent.known_losses;
  child->extras = parent.extras;
  child->own_retention = parent.own_retention;
  child->borrows_tail = tokens_per_block_.OffsetInBlock(parent.computed_tokens) != 0;
  ShareNamedTokens(parent, *child);
  child->windows.resize(windows_.size());
  for (const auto& window : windows_) window->sequences().Fork(parent, *child);
  const Sequence& added = *child;
  sequences_.emplace(added.key, std::move(child));
  Session& owner = sessions_.Require(session);
  owner.sequences.insert(new_sequence);
  if (parent.losses != parent.known_losses) owner.shortened.insert(new_sequence);
  op.WaitFor(ReadyOf(added));
  return SequenceForked{.sequence = &added, .ready = runner_.End(op)};
}

bool RunningSequences::NamesFrom(const Sequence& sequence, uint32_t begin) const {
  if (begin == sequence.token_count) return true;
  return sequence.named != nullptr && sequence.named_begin <= begin &&
         sequence.named_begin + ContentSpan(sequence.named->value, tokens_per_block_).size() >=
             sequence.token_count;
}

// Tokens that are named and not computed have no place in the child. The first fork makes a copy of
// them, which the parent keeps for the next forks.
void RunningSequences::ShareNamedTokens(Sequence& parent, Sequence& child) {
  const uint32_t begin = parent.computed_tokens;
  if (begin == parent.token_count) return;
  if (!NamesFrom(parent, begin)) {
    auto named = std::make_shared<Charged<SequenceContent>>();
    SequenceContent& content = named->value;
    const uint32_t placed = std::min(parent.token_count, parent.reserved_tokens);
    windows_.front()->sequences().ReadTokens(parent, begin, placed, &content);
    if (placed < parent.token_count) {
      const ContentSpan waiting =
          ContentSpan(parent.named->value, tokens_per_block_)
              .Sub(placed - parent.named_begin, parent.token_count - placed);
      content.tokens.insert(content.tokens.end(), waiting.tokens().begin(), waiting.tokens().end());
      content.keys.insert(content.keys.end(), waiting.keys().begin(), waiting.keys().end());
    }
    named->charge = SequenceAccounts::Charge(
        &accounts_, parent.tenant, 0,
        ContentBytes(parent.token_count - begin, parent.keyed, tokens_per_block_));
    parent.named = std::move(named);
    parent.named_begin = begin;
  }
  child.named = parent.named;
  child.named_begin = parent.named_begin;
}

absl::StatusOr<RunningSequences::Growth> RunningSequences::TruncateSequence(SessionId session,
                                                                            SequenceId sequence,
                                                                            uint32_t token_count,
                                                                            absl::Time now) {
  OperationScope op = runner_.Begin(session, now);
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  Sequence& cut = **found;
  op.tenant = cut.tenant;
  if (token_count == 0 || token_count > cut.token_count) {
    return MakeError(Reason::kInvalidCount,
                     absl::StrCat("a sequence of ", Counted(cut.token_count, "token"),
                                  " cannot be cut to ", token_count));
  }
  if (absl::Status status = CheckWhole(cut.keyed, "token_count", token_count); !status.ok()) {
    return status;
  }
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    if (!windows_[w]->sequences().CanTruncate(cut, token_count)) {
      return MakeError(Reason::kWindowPassed,
                       absl::StrCat("window ", WindowName(windows_[w]->window()),
                                    " has released blocks that token ", token_count, " needs"));
    }
    const uint32_t copies = windows_[w]->sequences().MustCopyCut(cut, token_count) ? 1 : 0;
    if (absl::Status status =
            capacity_.CheckNeeds(cut.tenant, w, windows_[w]->NeedsOf(copies, cut.tenant));
        !status.ok()) {
      return status;
    }
  }
  const uint32_t old_entries = TableSize(cut.reserved_tokens);
  uint32_t first_changed = old_entries;
  for (const auto& window : windows_) {
    first_changed = std::min(first_changed, window->sequences().Truncate(op, cut, token_count));
  }
  cut.extras.Cut(token_count);
  cut.token_count = token_count;
  cut.reserved_tokens = std::min(cut.reserved_tokens, token_count);
  if (!cut.has_waiting_tokens()) cut.named = nullptr;
  cut.charge.Resize(cut.charge.bytes() -
                    capacity_.TableBytes(old_entries - TableSize(cut.reserved_tokens)));
  if (token_count < cut.computed_tokens) cut.kv_version = ++last_kv_version_;
  cut.computed_tokens = std::min(cut.computed_tokens, token_count);
  cut.prompt_tokens = std::min(cut.prompt_tokens, token_count);
  cut.forked_tokens = std::min(cut.forked_tokens, token_count);
  return Growth{.first_block = first_changed,
                .blocks = TableSize(cut.reserved_tokens) - first_changed,
                .sequence = &cut,
                .ready = runner_.End(op)};
}

}  // namespace pagoda
