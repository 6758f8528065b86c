#include "manager/sequences/running_sequences.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda {
namespace {

// Whether the sequence has, in every window, the bytes that its first uncomputed token sees. Only a
// failed copy can take them: the sequence would have to compute blocks again that a sliding window
// has released.
bool CanGoOn(const WindowSet& windows, const Sequence& sequence) {
  for (size_t w = 0; w < sequence.windows.size(); ++w) {
    const uint32_t first = sequence.windows[w].first;
    if (first == 0) continue;
    const uint64_t reach = uint64_t{windows[w]->window().value()} - 1;
    const uint64_t computed = sequence.computed_tokens;
    if ((computed > reach ? computed - reach : 0) / windows.tokens_per_block().value() < first)
      return false;
  }
  return true;
}

uint64_t BytesOf(const SequenceRetention* retention) {
  return retention == nullptr
             ? 0
             : sizeof(SequenceRetention) + retention->ranges.size() * sizeof(RetentionRange);
}

}  // namespace

// What the steps of AddSequence find out, one after the other.
struct RunningSequences::Opening {
  const SequencePrompt& prompt;
  const PromptKey all;
  const PromptKey matchable;  // The part of `all` that can match.

  // Fit:
  std::vector<Match> matches;               // One for each window, cut to the same length.
  uint32_t matched = 0;                     // Tokens.
  uint64_t reserved = 0;                    // Tokens; includes the matched ones.
  absl::InlinedVector<MatchTail, 4> tails;  // One for each window.

  // CheckCosts:
  uint64_t waiting_tokens = 0;  // Named, and without reserved capacity.
  uint64_t own_bytes = 0;       // The cost of the sequence and its tables.
  uint64_t waiting_bytes = 0;
  uint64_t extras_bytes = 0;
};

absl::StatusOr<SequenceAdded> RunningSequences::AddSequence(SessionId session, SequenceId sequence,
                                                            const SequencePrompt& prompt,
                                                            absl::Time now) {
  OperationScope op = runner_.Begin(session, now);
  const SequenceKey key{session, sequence};
  if (absl::Status status = CheckNew(op, key, prompt); !status.ok()) return status;
  const absl::StatusOr<TenantId> charged =
      tenants_.Charged(sessions_.TenantOf(session), prompt.name_space, prompt.tenant);
  if (!charged.ok()) return charged.status();
  op.tenant = *charged;
  const PromptKey all = KeyOf(prompt, tokens_per_block_);
  Opening opening{.prompt = prompt, .all = all, .matchable = all.First(MatchLimit(all))};
  if (absl::Status status = Fit(op, opening); !status.ok()) return status;
  if (absl::Status status = CheckCosts(op, opening); !status.ok()) return status;

  std::unique_ptr<Sequence> added = MakeSequence(op, key, opening);
  SequenceAdded result{
      .matched_tokens = opening.matched,
      .matched_lower_tokens = windows_.back()->prefixes().LowerTokens(opening.matches.back()),
      .matched_below_tokens =
          matcher_.TokensBelow(opening.matches, prompt.name_space, opening.matchable,
                               opening.matched, prompt.whole_blocks_only),
      .sequence = added.get()};
  TakeBlocks(op, opening, *added);
  sequences_.emplace(key, std::move(added));
  sessions_.Require(session).sequences.insert(sequence);
  result.ready = runner_.End(op);
  return result;
}

absl::Status RunningSequences::CheckNew(const OperationScope& op, const SequenceKey& key,
                                        const SequencePrompt& prompt) const {
  if (sequences_.contains(key)) {
    return MakeError(Reason::kSequenceExists,
                     absl::StrCat("sequence ", key.sequence.value(), " exists already"));
  }
  if (prompt.empty()) {
    return MakeError(Reason::kInvalidCount, "a sequence needs a token or a key");
  }
  if (absl::Status status = CheckPrompt(prompt); !status.ok()) return status;
  const uint64_t size = KeyOf(prompt, tokens_per_block_).size();
  if (size > std::numeric_limits<uint32_t>::max()) {
    return capacity_.CheckCapacity(op.tenant, size, size, {});
  }
  return CheckWhole(prompt.name_space.keyed, "reserved_tokens", prompt.reserved_tokens);
}

absl::Status RunningSequences::Fit(const OperationScope& op, Opening& opening) const {
  const SequencePrompt& prompt = opening.prompt;
  const uint64_t size = opening.all.size();
  const uint64_t wanted = prompt.reserved_tokens == 0 ? size : prompt.reserved_tokens;
  const auto limit = static_cast<uint32_t>(opening.matchable.size());
  opening.matches = matcher_.FindPrefixes(prompt.name_space, opening.matchable);
  opening.matched = prompt.whole_blocks_only
                        ? matcher_.ValidBlocks(opening.matches, limit)
                        : matcher_.LengthOf(opening.matches, opening.matchable, limit);
  opening.tails.resize(windows_.size());
  absl::Status given_up;  // Why a longer match does not fit.
  for (;;) {
    matcher_.CutMatches(opening.matches, opening.matched);
    opening.reserved = std::max<uint64_t>(wanted, opening.matched);
    const absl::Status can_ever_fit = capacity_.CheckCapacity(
        op.tenant, std::max<uint64_t>(opening.reserved, size), opening.reserved, opening.matches);
    // The longer match will fit when other sequences have ended.
    if (!can_ever_fit.ok()) return given_up.ok() ? can_ever_fit : given_up;
    absl::Status fits = FitsNow(op, opening);
    if (fits.ok() || tokens_per_block_.OffsetInBlock(opening.matched) == 0) return fits;
    // A part of a block is not worth a refusal.
    given_up = std::move(fits);
    const uint32_t whole_blocks = tokens_per_block_.BlockForToken(opening.matched);
    opening.matched =
        matcher_.ValidLength(opening.matches, whole_blocks * tokens_per_block_.value());
  }
}

absl::Status RunningSequences::FitsNow(const OperationScope& op, Opening& opening) const {
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const Demand needs =
        windows_[w]->prefixes().DemandFor(op.tenant, opening.matches[w], opening.reserved);
    opening.tails[w] = needs.tail;
    if (!needs.fits) return capacity_.CheckNeeds(op.tenant, w, needs.needs);
  }
  return absl::OkStatus();
}

absl::Status RunningSequences::CheckCosts(const OperationScope& op, Opening& opening) const {
  const SequencePrompt& prompt = opening.prompt;
  const uint64_t size = opening.all.size();
  opening.waiting_tokens = size - std::min(size, opening.reserved);
  opening.waiting_bytes =
      ContentBytes(opening.waiting_tokens, prompt.name_space.keyed, tokens_per_block_);
  opening.own_bytes = capacity_.SequenceBytes() + prompt.name_space.cache_salt.size() +
                      capacity_.TableBytes(TableSize(opening.reserved));
  opening.extras_bytes = prompt.extra_token_ids.size() * sizeof(uint64_t) +
                         prompt.multimodal_items.size() * sizeof(MultimodalItem);
  const uint64_t bytes =
      opening.own_bytes + opening.waiting_bytes + opening.extras_bytes + BytesOf(prompt.retention);
  return accounts_.Check(op.tenant, {.sequences = 1, .bytes = bytes, .all_bytes = bytes});
}

std::unique_ptr<Sequence> RunningSequences::MakeSequence(const OperationScope& op,
                                                         const SequenceKey& key,
                                                         const Opening& opening) {
  const SequencePrompt& prompt = opening.prompt;
  const auto charge = [&](uint32_t sequences, uint64_t bytes) {
    return SequenceAccounts::Charge(&accounts_, op.tenant, sequences, bytes);
  };
  auto made = std::make_unique<Sequence>();
  made->kv_version = ++last_kv_version_;
  made->key = key;
  made->charge = charge(1, opening.own_bytes);
  made->windows.resize(windows_.size());
  made->tenant = op.tenant;
  made->keyed = prompt.name_space.keyed;
  made->prompt_tokens = static_cast<uint32_t>(opening.all.size());
  made->matched_tokens = opening.matched;
  made->uncounted = prompt.uncounted;
  if (opening.extras_bytes != 0) {
    const auto& ids = prompt.extra_token_ids;
    const auto& items = prompt.multimodal_items;
    made->extras = SequenceExtras(
        opening.all.size(),
        {.value = {.extra_ids = {ids.begin(), ids.end()}, .items = {items.begin(), items.end()}},
         .charge = charge(0, opening.extras_bytes)});
  }
  if (prompt.retention != nullptr) {
    made->own_retention = std::make_shared<Charged<SequenceRetention>>(Charged<SequenceRetention>{
        .value = *prompt.retention, .charge = charge(0, BytesOf(prompt.retention))});
  }
  return made;
}

void RunningSequences::TakeBlocks(OperationScope& op, const Opening& opening, Sequence& added) {
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->sequences().Begin(op, added, opening.prompt.name_space, opening.matches[w],
                                   opening.tails[w], TableSize(opening.reserved));
  }
  added.token_count = added.computed_tokens = opening.matched;
  added.reserved_tokens = static_cast<uint32_t>(opening.reserved);
  const ContentSpan content(opening.prompt.tokens, opening.prompt.keys, tokens_per_block_);
  if (opening.waiting_tokens != 0) {
    added.named = std::make_shared<Charged<SequenceContent>>(Charged<SequenceContent>{
        .value = content.From(opening.reserved).Copy(),
        .charge = SequenceAccounts::Charge(&accounts_, op.tenant, 0, opening.waiting_bytes)});
    added.named_begin = added.reserved_tokens;
  }
  Place(added, content.From(opening.matched));
}

absl::StatusOr<RunningSequences::Growth> RunningSequences::ReserveTokens(SessionId session,
                                                                         SequenceId sequence,
                                                                         uint32_t count,
                                                                         absl::Time now) {
  OperationScope op = runner_.Begin(session, now);
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  if (count == 0) return MakeError(Reason::kInvalidCount, "0 tokens to reserve");
  if ((*found)->must_be_freed) return SequenceCannotGoOn();
  if (absl::Status status = CheckWhole((*found)->keyed, "count", count); !status.ok())
    return status;
  op.tenant = (*found)->tenant;
  const uint64_t reserved = uint64_t{(*found)->reserved_tokens} + count;
  if (absl::Status status = capacity_.CheckGrowth(**found, reserved); !status.ok()) return status;
  Growth growth = Grow(op, **found, static_cast<uint32_t>(reserved), (*found)->computed_tokens);
  growth.ready = runner_.End(op);
  return growth;
}

absl::StatusOr<uint32_t> RunningSequences::CommitTokens(SessionId session, SequenceId sequence,
                                                        absl::Span<const TokenId> tokens,
                                                        uint32_t computed_tokens, absl::Time now,
                                                        uint32_t known_losses,
                                                        absl::Span<const ClientKey> keys) {
  OperationScope op = runner_.Begin(session, now);
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  if (absl::Status status = CheckKind(**found, tokens, keys, computed_tokens); !status.ok()) {
    return status;
  }
  const ContentSpan content(tokens, keys, tokens_per_block_);
  const uint64_t token_count = uint64_t{(*found)->token_count} + content.size();
  const uint32_t reserved = (*found)->reserved_tokens;
  if (!content.empty() && token_count > reserved) {
    return MakeError(
        Reason::kReservationExceeded,
        absl::StrCat("sequence ", sequence.value(), " would have ", Counted(token_count, "token"),
                     "; its reserved_tokens is ", reserved));
  }
  if (absl::Status status =
          CheckCommit(**found, token_count, reserved, computed_tokens, known_losses);
      !status.ok()) {
    return status;
  }
  (*found)->known_losses = std::max((*found)->known_losses, known_losses);
  Commit(op, **found, content, computed_tokens);
  runner_.End(op);
  return (*found)->token_count;
}

absl::StatusOr<RunningSequences::Growth> RunningSequences::AppendBlocks(
    OperationScope& op, SessionId session, Sequence& growing, absl::Span<const TokenId> tokens,
    absl::Span<const ClientKey> keys, uint32_t computed_tokens, uint32_t known_losses) {
  op.deferring = runner_.DeferringSession(session);
  op.tenant = growing.tenant;
  if (absl::Status status = CheckKind(growing, tokens, keys, computed_tokens); !status.ok()) {
    return status;
  }
  const ContentSpan content(tokens, keys, tokens_per_block_);
  const uint64_t token_count = uint64_t{growing.token_count} + content.size();
  const uint64_t reserved = std::max<uint64_t>(growing.reserved_tokens, token_count);
  if (absl::Status status =
          CheckCommit(growing, token_count, reserved, computed_tokens, known_losses);
      !status.ok()) {
    return status;
  }
  Growth growth{.first_block = TableSize(growing.reserved_tokens), .sequence = &growing};
  if (reserved > growing.reserved_tokens) {
    if (absl::Status status = capacity_.CheckGrowth(growing, reserved); !status.ok()) return status;
    // The KV of newly declared tokens is in the blocks already, if the tokens had a place. A copy
    // of the tail includes it.
    growth =
        Grow(op, growing, static_cast<uint32_t>(reserved),
             std::max(growing.computed_tokens, std::min(computed_tokens, growing.reserved_tokens)));
  }
  growing.known_losses = std::max(growing.known_losses, known_losses);
  Commit(op, growing, content, computed_tokens);
  growth.ready = runner_.End(op);
  return growth;
}

// --- The end, and look-ups ---

absl::Status RunningSequences::FreeSequence(SessionId session, SequenceId sequence,
                                            absl::Time now) {
  OperationScope op = runner_.Begin(session, now);
  if (absl::Status status = RequireSequence(session, sequence).status(); !status.ok()) {
    return status;
  }
  End(op, {session, sequence}, WindowSequences::ComputedTail::kPublish);
  sessions_.Require(session).sequences.erase(sequence);
  runner_.End(op);
  return absl::OkStatus();
}

absl::StatusOr<const Sequence*> RunningSequences::FindSequence(SessionId session,
                                                               SequenceId sequence) const {
  const auto it = sequences_.find({session, sequence});
  if (it == sequences_.end()) {
    return MakeError(Reason::kUnknownSequence,
                     absl::StrCat("the session has no sequence ", sequence.value()));
  }
  return it->second.get();
}

absl::StatusOr<Sequence*> RunningSequences::RequireSequence(SessionId session,
                                                            SequenceId sequence) {
  const auto it = sequences_.find({session, sequence});
  if (it == sequences_.end()) return FindSequence(session, sequence).status();
  return it->second.get();
}

std::vector<ShortenedSequence> RunningSequences::Shortened(SessionId id) {
  absl::btree_set<SequenceId>& names = sessions_.Require(id).shortened;
  std::vector<ShortenedSequence> shortened;
  for (auto name = names.begin(); name != names.end();) {
    const auto found = sequences_.find({id, *name});
    if (found == sequences_.end() || found->second->losses == found->second->known_losses) {
      name = names.erase(name);
      continue;
    }
    shortened.push_back({.sequence = *name++,
                         .computed_tokens = found->second->computed_tokens,
                         .losses = found->second->losses,
                         .must_be_freed = found->second->must_be_freed});
  }
  return shortened;
}

// --- Checks: a check that fails has changed nothing ---

absl::Status RunningSequences::SequenceCannotGoOn() {
  return MakeError(
      Reason::kKvLost,
      "a copy failed, and the window has passed blocks that must be computed again: the "
      "sequence can only be freed");
}

Ticket RunningSequences::ReadyOf(const Sequence& sequence) const {
  Ticket ready;
  if (copies_.idle()) return ready;
  const uint32_t computed = tokens_per_block_.BlockForToken(sequence.computed_tokens);
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const SequenceBlocks& blocks = sequence.windows[w];
    for (size_t i = blocks.first; i < blocks.table.size(); ++i) {
      // A sequence's slots are in the primary tier. A copy can still read a slot that the sequence
      // is about to write.
      const SlotRef slot{kPrimaryTier, blocks.table[i].slot};
      ready = std::max(ready, i < computed ? copies_.Arrival(w, slot) : copies_.LastTouch(w, slot));
    }
  }
  return ready;
}

absl::StatusOr<SequenceKv> RunningSequences::ReadSequence(SessionId session, SequenceId sequence,
                                                          uint32_t window_index,
                                                          uint32_t first_block,
                                                          uint32_t max_blocks) const {
  const absl::StatusOr<const Sequence*> found = FindSequence(session, sequence);
  if (!found.ok()) return found.status();
  const SequenceBlocks& blocks = (*found)->windows[window_index];
  SequenceKv kv{.version = (*found)->kv_version,
                .computed_tokens = (*found)->computed_tokens,
                .losses = (*found)->losses,
                .must_be_freed = (*found)->must_be_freed,
                .first_block = blocks.first};
  const uint64_t end = std::min<uint64_t>(blocks.table.size(), uint64_t{first_block} + max_blocks);
  for (uint64_t i = first_block; i < end; ++i) {
    const BlockHandle& block = blocks.table[i];
    kv.blocks.push_back(block);
    if (copies_.idle() || block.id == kNoBlock) continue;
    const Ticket arrival = copies_.Arrival(window_index, {kPrimaryTier, block.slot});
    kv.ready = std::max(kv.ready, arrival);
  }
  return kv;
}

absl::Status RunningSequences::CheckCommit(const Sequence& sequence, uint64_t token_count,
                                           uint64_t reserved_tokens, uint32_t computed_tokens,
                                           uint32_t known_losses) const {
  if (sequence.must_be_freed) return SequenceCannotGoOn();
  if (known_losses > sequence.losses) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("known_losses ", known_losses, " is above the sequence's ",
                                  sequence.losses, " losses"));
  }
  if (computed_tokens == 0) return absl::OkStatus();
  if (known_losses < sequence.losses) {
    return MakeError(Reason::kKvLost, absl::StrCat("a copy failed: only the first ",
                                                   Counted(sequence.computed_tokens, "token"),
                                                   " can be used; known_losses is ", known_losses,
                                                   "; the losses are ", sequence.losses));
  }
  if (computed_tokens < sequence.computed_tokens) {
    return MakeError(
        Reason::kComputedBackwards,
        absl::StrCat("computed_tokens ", computed_tokens, " is below ", sequence.computed_tokens));
  }
  if (computed_tokens > token_count) {
    return MakeError(Reason::kComputedBeyondTokens,
                     absl::StrCat("computed_tokens ", computed_tokens, " is above the ",
                                  Counted(token_count, "token"), " named"));
  }
  if (computed_tokens > reserved_tokens) {
    return MakeError(Reason::kReservationExceeded,
                     absl::StrCat("computed_tokens ", computed_tokens,
                                  " is above its reserved_tokens ", reserved_tokens));
  }
  return absl::OkStatus();
}

absl::Status RunningSequences::CheckKind(const Sequence& sequence, absl::Span<const TokenId> tokens,
                                         absl::Span<const ClientKey> keys,
                                         uint32_t computed_tokens) const {
  if (sequence.keyed ? !tokens.empty() : !keys.empty()) [[unlikely]] {
    return MakeError(
        Reason::kKeysAndTokens,
        absl::StrCat(Counted(tokens.size(), "token"), " and ", Counted(keys.size(), "key"),
                     " for a sequence of ", sequence.keyed ? "keys" : "tokens"));
  }
  return CheckWhole(sequence.keyed, "computed_tokens", computed_tokens);
}

absl::Status RunningSequences::CheckWhole(bool keyed, const char* what, uint64_t tokens) const {
  if (!keyed || tokens_per_block_.OffsetInBlock(tokens) == 0) return absl::OkStatus();
  return MakeError(Reason::kWholeBlocksOnly,
                   absl::StrCat(what, " ", tokens, " of a keyed sequence is not a whole number of ",
                                "blocks of ", Counted(tokens_per_block_.value(), "token")));
}

// --- Changes, after all checks ---

RunningSequences::Growth RunningSequences::Grow(OperationScope& op, Sequence& sequence,
                                                uint32_t reserved_tokens,
                                                uint32_t computed_tokens) {
  const uint32_t old_size = TableSize(sequence.reserved_tokens);
  const uint32_t size = TableSize(reserved_tokens);
  Growth growth{.first_block = old_size, .blocks = size - old_size, .sequence = &sequence};
  for (const auto& window : windows_) {
    if (sequence.borrows_tail && window->sequences().MustCopyTail(sequence)) {
      growth.first_block = old_size - 1;
      growth.blocks = size - old_size + 1;
    }
    window->sequences().Grow(op, sequence, size, computed_tokens);
  }
  sequence.borrows_tail = false;
  sequence.charge.Resize(sequence.charge.bytes() + capacity_.TableBytes(size - old_size));
  const uint32_t old_reserved_tokens = std::exchange(sequence.reserved_tokens, reserved_tokens);
  PlaceWaiting(sequence, old_reserved_tokens);
  if (!sequence.has_waiting_tokens()) sequence.named = nullptr;
  return growth;
}

// Names the next tokens. Tokens with a place go to their blocks. The rest is in `named` already.
void RunningSequences::Place(Sequence& sequence, const ContentSpan& content) {
  const uint64_t reserved =
      sequence.reserved_tokens - std::min(sequence.reserved_tokens, sequence.token_count);
  Write(sequence, sequence.token_count, content.Sub(0, std::min(reserved, content.size())));
  sequence.token_count += static_cast<uint32_t>(content.size());
}

void RunningSequences::PlaceWaiting(Sequence& sequence, uint32_t old_reserved_tokens) {
  if (sequence.token_count <= old_reserved_tokens) return;
  const uint32_t end = std::min(sequence.token_count, sequence.reserved_tokens);
  const ContentSpan named(sequence.named->value, tokens_per_block_);
  Write(sequence, old_reserved_tokens,
        named.Sub(old_reserved_tokens - sequence.named_begin, end - old_reserved_tokens));
}

void RunningSequences::Write(Sequence& sequence, uint32_t position, const ContentSpan& content) {
  for (const auto& window : windows_) {
    window->sequences().WriteTokens(sequence, position, content.tokens());
    if (!content.keys().empty()) window->sequences().WriteKeys(sequence, position, content.keys());
  }
}

void RunningSequences::Commit(OperationScope& op, Sequence& sequence, const ContentSpan& content,
                              uint32_t computed_tokens) {
  Place(sequence, content);
  const uint32_t before = sequence.computed_tokens;
  if (computed_tokens <= before) return;
  sequence.computed_tokens = computed_tokens;
  const bool fills_block =
      tokens_per_block_.BlockForToken(computed_tokens) != tokens_per_block_.BlockForToken(before);
  for (const auto& window : windows_) {
    if (fills_block || window->sliding()) window->sequences().Publish(op, sequence);
  }
}

void RunningSequences::Shorten(const CopyTracker::Lost& lost) {
  for (const SequenceKey& key : lost.readers) {
    Sequence& sequence = *sequences_.at(key);
    const std::optional<uint32_t> entry =
        windows_[lost.window]->sequences().FindEntry(sequence, lost.block.id);
    PAGODA_CHECK(entry.has_value(), "a copy's readers have its target in their tables");
    const uint32_t left = *entry * tokens_per_block_.value();
    if (left >= sequence.computed_tokens) continue;
    sequence.kv_version = ++last_kv_version_;
    sequence.computed_tokens = left;
    sequence.must_be_freed = !CanGoOn(windows_, sequence);
    if (sequence.must_be_freed) sequence.computed_tokens = 0;
    if (sequence.losses++ == sequence.known_losses) {
      sessions_.Require(key.session).shortened.insert(key.sequence);
    }
  }
}

void RunningSequences::End(OperationScope& op, SequenceKey key,
                           WindowSequences::ComputedTail tail) {
  const auto it = sequences_.find(key);
  PAGODA_CHECK(it != sequences_.end(), "a session's sequences exist");
  for (const auto& window : windows_) window->sequences().End(op, *it->second, tail);
  sequences_.erase(it);
}

// --- For tests ---

void RunningSequences::AddHolders(size_t window_index, WindowBlockManager::Holders* holders) const {
  for (const auto& [key, sequence] : sequences_) {
    PAGODA_CHECK(
        sequence->computed_tokens <= std::min(sequence->token_count, sequence->reserved_tokens),
        "rule 7: computed tokens were named and have a place");
    windows_[window_index]->sequences().CheckSequence(*sequence);
    const SequenceBlocks& blocks = sequence->windows[window_index];
    for (const BlockHandle& handle : blocks.table) {
      if (handle.id != kNoBlock) (*holders)[handle.id.value()].push_back(sequence->tenant);
    }
    for (const BlockId id : blocks.canonical) {
      if (id != kNoBlock) (*holders)[id.value()].push_back(sequence->tenant);
    }
  }
}

void RunningSequences::AddCosts(Costs* costs) const {
  std::set<const void*> shared;
  for (const auto& [key, sequence] : sequences_) {
    const size_t tenant = sequence->tenant.value();
    ++costs->sequences[tenant];
    costs->bytes[tenant] += sequence->charge.bytes();
    const uint64_t least =
        capacity_.SequenceBytes() + capacity_.TableBytes(TableSize(sequence->reserved_tokens));
    PAGODA_CHECK(
        sequence->charge.bytes() >= least && sequence->charge.bytes() <= least + kMaxCacheSaltBytes,
        "a sequence is charged for itself and its tables");
    const auto add = [&](const auto& part) {
      PAGODA_CHECK(part->charge.bytes() > 0, "a value that forks share is charged once");
      if (shared.insert(part.get()).second) costs->bytes[tenant] += part->charge.bytes();
    };
    if (sequence->named != nullptr) add(sequence->named);
    if (sequence->own_retention != nullptr) add(sequence->own_retention);
    sequence->extras.VisitShared(add);
  }
}

}  // namespace pagoda
