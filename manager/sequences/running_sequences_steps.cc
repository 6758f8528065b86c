// Appends: one, and one for each sequence of a decode step.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/sequences/running_sequences.h"

namespace pagoda {
namespace {

// This many sequences are looked up before the first of them changes, to prefetch their memory.
constexpr size_t kAhead = 16;

absl::Status CheckArray(const char* name, const std::vector<uint32_t>& array,
                        size_t num_sequences) {
  if (array.empty() || array.size() == num_sequences) return absl::OkStatus();
  return InvalidArgument(
      absl::StrCat(array.size(), " ", name, " for ", Counted(num_sequences, "sequence")));
}

absl::Status CheckStep(const AppendStep& step) {
  const size_t num_sequences = step.sequences.size();
  if (num_sequences == 0 || num_sequences > kMaxStepSequences) {
    return InvalidArgument(absl::StrCat("a step of ", Counted(num_sequences, "sequence"), "; 1 to ",
                                        kMaxStepSequences, " are allowed"));
  }
  for (const auto& [name, array] : {std::pair("token_counts", &step.token_counts),
                                    std::pair("computed_tokens", &step.computed_tokens),
                                    std::pair("known_losses", &step.known_losses)}) {
    if (absl::Status status = CheckArray(name, *array, num_sequences); !status.ok()) return status;
  }
  const uint64_t tokens =
      step.token_counts.empty()
          ? num_sequences
          : std::accumulate(step.token_counts.begin(), step.token_counts.end(), uint64_t{0});
  if (tokens == step.tokens.size()) return absl::OkStatus();
  return InvalidArgument(absl::StrCat("the step has ", Counted(step.tokens.size(), "token"),
                                      "; its sequences take ", tokens));
}

uint32_t EntryOf(const std::vector<uint32_t>& array, size_t i, uint32_t without) {
  return array.empty() ? without : array[i];
}

// The new entries, one window after the other.
void AddGrowth(size_t index, const SequenceGrowth& growth, AppendedStep& out) {
  if (growth.blocks == 0) return;
  out.grown.push_back({.index = static_cast<uint32_t>(index),
                       .first_block = growth.first_block,
                       .blocks = growth.blocks,
                       .ready = growth.ready});
  for (const SequenceBlocks& window : growth.sequence->windows) {
    out.blocks.insert(out.blocks.end(), window.table.begin() + growth.first_block,
                      window.table.end());
  }
}

}  // namespace

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

absl::StatusOr<RunningSequences::Growth> RunningSequences::AppendTokens(
    SessionId session, SequenceId sequence, absl::Span<const TokenId> tokens,
    uint32_t computed_tokens, absl::Time now, uint32_t known_losses,
    absl::Span<const ClientKey> keys) {
  OperationScope op = runner_.Begin(now);
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

absl::StatusOr<AppendedStep> RunningSequences::AppendStep(SessionId session,
                                                          const pagoda::AppendStep& step,
                                                          absl::Time now) {
  // Expiries apply even if the call is refused.
  runner_.Begin(now);
  if (absl::Status status = CheckStep(step); !status.ok()) return status;
  AppendedStep appended;
  absl::Span<const TokenId> rest = step.tokens;
  const size_t num_sequences = step.sequences.size();
  std::array<Sequence*, kAhead> found;
  for (size_t i = 0; i < num_sequences; ++i) {
    if (i % kAhead == 0) {
      // An append ends no sequence, so the pointers stay valid.
      const size_t end = std::min(num_sequences, i + kAhead);
      for (size_t ahead = i; ahead < end; ++ahead) {
        const auto it = sequences_.find({session, step.sequences[ahead]});
        found[ahead - i] = it == sequences_.end() ? nullptr : it->second.get();
        if (found[ahead - i] != nullptr) __builtin_prefetch(found[ahead - i]);
      }
    }
    const uint32_t computed_tokens = EntryOf(step.computed_tokens, i, 0);
    const uint32_t known_losses = EntryOf(step.known_losses, i, 0);
    const absl::Span<const TokenId> tokens = rest.first(EntryOf(step.token_counts, i, 1));
    rest.remove_prefix(tokens.size());
    Sequence* const sequence = found[i % kAhead];
    if (sequence == nullptr) {
      appended.failed.push_back({.index = static_cast<uint32_t>(i),
                                 .status = FindSequence(session, step.sequences[i]).status()});
      continue;
    }
    if (StaysInBlock(*sequence, tokens.size(), computed_tokens, known_losses)) {
      AppendInBlock(*sequence, tokens, computed_tokens);
      continue;
    }
    // Each append is its own operation: it is checked, and has its events, by itself.
    OperationScope op = runner_.Begin(now);
    const absl::StatusOr<Growth> growth =
        AppendBlocks(op, session, *sequence, tokens, {}, computed_tokens, known_losses);
    if (growth.ok()) {
      AddGrowth(i, *growth, appended);
    } else {
      appended.failed.push_back({.index = static_cast<uint32_t>(i), .status = growth.status()});
    }
  }
  return appended;
}

}  // namespace pagoda
