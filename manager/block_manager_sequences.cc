// The half of BlockManager that runs sequences: each operation checks everything first, then
// changes every window.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {
namespace {

// Whether the sequence has, in every window, what its first uncomputed token sees. Only a failed
// copy can take it: then a sliding window has let go of blocks that would have to be computed
// again.
bool CanGoOn(const CacheInfo& info, const Sequence& sequence) {
  for (size_t w = 0; w < sequence.windows.size(); ++w) {
    const uint32_t first = sequence.windows[w].first;
    if (first == 0) continue;
    const uint64_t reach = uint64_t{info.windows[w].window.value()} - 1;
    const uint64_t computed = sequence.computed_tokens;
    if ((computed > reach ? computed - reach : 0) / info.tokens_per_block < first) return false;
  }
  return true;
}

uint64_t BytesOf(const SequenceRetention* retention) {
  return retention == nullptr
             ? 0
             : sizeof(SequenceRetention) + retention->ranges.size() * sizeof(RetentionRange);
}

}  // namespace

absl::StatusOr<SequenceAdded> BlockManager::AddSequence(SessionId session, SequenceId sequence,
                                                        const Prompt& prompt, absl::Time now) {
  OperationScope op = BeginOperation(session, now);
  const SequenceKey key{session, sequence};
  const absl::Span<const TokenId> tokens = prompt.tokens;
  if (sequences_.contains(key)) {
    return MakeError(Reason::kSequenceExists,
                     absl::StrCat("sequence ", sequence.value(), " exists already"));
  }
  if (tokens.empty()) return MakeError(Reason::kInvalidCount, "a sequence needs a token");
  if (absl::Status status = CheckPrompt(prompt); !status.ok()) return status;
  if (tokens.size() > std::numeric_limits<uint32_t>::max()) {
    return CheckRoom(op.tenant, tokens.size(), tokens.size(), {});
  }

  const absl::StatusOr<TenantId> charged =
      tenants_.Charged(TenantOf(session), prompt.name_space, prompt.tenant);
  if (!charged.ok()) return charged.status();
  op.tenant = *charged;
  // One token must be computed to get logits, so the last one is not looked for.
  std::vector<Match> matches =
      FindPrefixes(prompt.name_space, KeyOf(prompt).First(tokens.size() - 1));
  const uint64_t wanted = prompt.room_tokens == 0 ? tokens.size() : prompt.room_tokens;
  uint32_t matched = ValidLength(matches, static_cast<uint32_t>(tokens.size() - 1));
  absl::InlinedVector<WindowBlockManager::Tail, 4> tails(windows_.size());
  uint64_t room = 0;
  absl::Status given_up;  // Why there is no room for a longer match.
  for (bool settled = false; !settled;) {
    CutMatches(matches, matched);
    room = std::max<uint64_t>(wanted, matched);
    if (absl::Status status =
            CheckRoom(op.tenant, std::max<uint64_t>(room, tokens.size()), room, matches);
        !status.ok()) {
      // With the longer match there will be room when others have gone.
      return given_up.ok() ? status : given_up;
    }
    settled = true;
    for (uint32_t w = 0; w < windows_.size(); ++w) {
      const Room needs = windows_[w]->RoomFor(op.tenant, matches[w], room);
      tails[w] = needs.tail;
      if (needs.fits) continue;
      if (tokens_per_block_.OffsetInBlock(matched) == 0) {
        return CheckNeeds(op.tenant, w, needs.needs);
      }
      // The last block in part is not worth a refusal.
      given_up = CheckNeeds(op.tenant, w, needs.needs);
      matched = ValidLength(matches,
                            tokens_per_block_.BlockForToken(matched) * tokens_per_block_.value());
      settled = false;
      break;
    }
  }

  const uint64_t waiting = tokens.size() - std::min<uint64_t>(tokens.size(), room);
  const uint64_t own_bytes =
      SequenceBytes() + prompt.name_space.cache_salt.size() + TableBytes(TableSize(room));
  const uint64_t extras_bytes = prompt.extra_token_ids.size() * sizeof(uint64_t) +
                                prompt.multimodal_items.size() * sizeof(MultimodalItem);
  const uint64_t shared_bytes =
      waiting * sizeof(TokenId) + extras_bytes + BytesOf(prompt.retention);
  if (absl::Status status =
          sequence_accounts_.Check(op.tenant, {.sequences = 1,
                                               .bytes = own_bytes + shared_bytes,
                                               .all_bytes = own_bytes + shared_bytes});
      !status.ok()) {
    return status;
  }
  const auto charge = [&](uint32_t sequences, uint64_t bytes) {
    return SequenceAccounts::Charge(&sequence_accounts_, op.tenant, sequences, bytes);
  };

  auto added = std::make_unique<Sequence>();
  added->key = key;
  added->charge = charge(1, own_bytes);
  added->windows.resize(windows_.size());
  added->tenant = op.tenant;
  added->prompt_tokens = static_cast<uint32_t>(tokens.size());
  added->matched_tokens = matched;
  if (extras_bytes != 0) {
    const auto& ids = prompt.extra_token_ids;
    const auto& items = prompt.multimodal_items;
    added->extras = SequenceExtras(tokens.size(), {.value = {.extra_ids = {ids.begin(), ids.end()},
                                                             .items = {items.begin(), items.end()}},
                                                   .charge = charge(0, extras_bytes)});
  }
  SequenceAdded result{.matched_tokens = matched,
                       .matched_secondary_tokens = windows_.back()->SecondaryTokens(matches.back()),
                       .sequence = added.get()};
  if (prompt.retention != nullptr) {
    added->wishes = std::make_shared<Charged<SequenceRetention>>(Charged<SequenceRetention>{
        .value = *prompt.retention, .charge = charge(0, BytesOf(prompt.retention))});
  }
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->CountLookup(op, added->prompt_tokens, matches[w]);
    windows_[w]->Begin(op, *added, prompt.name_space, matches[w], tails[w], TableSize(room));
  }
  added->token_count = added->computed_tokens = added->matched_tokens = matched;
  added->room_tokens = static_cast<uint32_t>(room);
  if (waiting != 0) {
    const absl::Span<const TokenId> rest = tokens.last(waiting);
    added->named = std::make_shared<Charged<std::vector<TokenId>>>(Charged<std::vector<TokenId>>{
        .value = {rest.begin(), rest.end()}, .charge = charge(0, waiting * sizeof(TokenId))});
    added->named_begin = added->room_tokens;
  }
  Place(*added, tokens.subspan(matched));
  sequences_.emplace(key, std::move(added));
  RequireSession(session).sequences.insert(sequence);
  result.ready = EndOperation(op);
  return result;
}

absl::StatusOr<BlockManager::Growth> BlockManager::ReserveTokens(SessionId session,
                                                                 SequenceId sequence,
                                                                 uint32_t count, absl::Time now) {
  OperationScope op = BeginOperation(session, now);
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  if (count == 0) return MakeError(Reason::kInvalidCount, "room for 0 tokens asked for");
  if ((*found)->must_be_freed) return SequenceCannotGoOn();
  op.tenant = (*found)->tenant;
  const uint64_t room = uint64_t{(*found)->room_tokens} + count;
  if (absl::Status status = CheckGrowth(**found, room); !status.ok()) return status;
  Growth growth = Grow(op, **found, static_cast<uint32_t>(room), (*found)->computed_tokens);
  growth.ready = EndOperation(op);
  return growth;
}

absl::StatusOr<uint32_t> BlockManager::CommitTokens(SessionId session, SequenceId sequence,
                                                    absl::Span<const TokenId> tokens,
                                                    uint32_t computed_tokens, absl::Time now,
                                                    uint32_t known_losses) {
  OperationScope op = BeginOperation(session, now);
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  const uint64_t token_count = uint64_t{(*found)->token_count} + tokens.size();
  const uint32_t room = (*found)->room_tokens;
  if (!tokens.empty() && token_count > room) {
    return MakeError(Reason::kRoomExceeded,
                     absl::StrCat("sequence ", sequence.value(), " would have ", token_count,
                                  " tokens and room for ", room));
  }
  if (absl::Status status = CheckCommit(**found, token_count, room, computed_tokens, known_losses);
      !status.ok()) {
    return status;
  }
  (*found)->known_losses = std::max((*found)->known_losses, known_losses);
  Commit(op, **found, tokens, computed_tokens);
  EndOperation(op);
  return (*found)->token_count;
}

absl::StatusOr<BlockManager::Growth> BlockManager::AppendTokens(
    SessionId session, SequenceId sequence, absl::Span<const TokenId> tokens,
    uint32_t computed_tokens, absl::Time now, uint32_t known_losses) {
  OperationScope op = BeginOperation(now);
  const auto found = sequences_.find({session, sequence});
  if (found == sequences_.end()) return FindSequence(session, sequence).status();
  Sequence& growing = *found->second;
  // In most calls the token's place is in the last block, and nothing but that token is written.
  if (StaysInBlock(growing, tokens.size(), computed_tokens, known_losses)) {
    for (const auto& window : windows_) window->WriteTokens(growing, growing.token_count, tokens);
    growing.token_count += static_cast<uint32_t>(tokens.size());
    growing.room_tokens = std::max(growing.room_tokens, growing.token_count);
    growing.computed_tokens = std::max(growing.computed_tokens, computed_tokens);
    return Growth{.first_block = TableSize(growing.room_tokens), .sequence = &growing};
  }
  op.draining = DrainingOf(session);
  op.tenant = growing.tenant;
  const uint64_t token_count = uint64_t{growing.token_count} + tokens.size();
  const uint64_t room = std::max<uint64_t>(growing.room_tokens, token_count);
  if (absl::Status status = CheckCommit(growing, token_count, room, computed_tokens, known_losses);
      !status.ok()) {
    return status;
  }
  Growth growth{.first_block = TableSize(growing.room_tokens), .sequence = &growing};
  if (room > growing.room_tokens) {
    if (absl::Status status = CheckGrowth(growing, room); !status.ok()) return status;
    // What is declared computed and had a place already was computed there: a copy takes it along.
    growth =
        Grow(op, growing, static_cast<uint32_t>(room),
             std::max(growing.computed_tokens, std::min(computed_tokens, growing.room_tokens)));
  }
  growing.known_losses = std::max(growing.known_losses, known_losses);
  Commit(op, growing, tokens, computed_tokens);
  growth.ready = EndOperation(op);
  return growth;
}

// Whether an append takes no block, publishes none and copies none, and cannot fail.
bool BlockManager::StaysInBlock(const Sequence& sequence, size_t new_tokens,
                                uint32_t computed_tokens, uint32_t known_losses) const {
  const uint64_t token_count = uint64_t{sequence.token_count} + new_tokens;
  const uint64_t places = uint64_t{TableSize(sequence.room_tokens)} * tokens_per_block_.value();
  if (token_count > places || sequence.borrows_tail || sequence.has_waiting_tokens()) return false;
  if (sequence.must_be_freed || any_slides_) return false;
  if (known_losses != sequence.losses || known_losses != sequence.known_losses) return false;
  return computed_tokens == 0 ||
         (computed_tokens >= sequence.computed_tokens && computed_tokens <= token_count &&
          tokens_per_block_.BlockForToken(computed_tokens) ==
              tokens_per_block_.BlockForToken(sequence.computed_tokens));
}

// --- The end, and look-ups ---

absl::Status BlockManager::FreeSequence(SessionId session, SequenceId sequence, absl::Time now) {
  OperationScope op = BeginOperation(session, now);
  if (absl::Status status = RequireSequence(session, sequence).status(); !status.ok()) {
    return status;
  }
  EndSequence(op, {session, sequence}, WindowBlockManager::ComputedTail::kPublish);
  RequireSession(session).sequences.erase(sequence);
  EndOperation(op);
  return absl::OkStatus();
}

absl::StatusOr<const Sequence*> BlockManager::FindSequence(SessionId session,
                                                           SequenceId sequence) const {
  const auto it = sequences_.find({session, sequence});
  if (it == sequences_.end()) {
    return MakeError(Reason::kUnknownSequence,
                     absl::StrCat("the session has no sequence ", sequence.value()));
  }
  return it->second.get();
}

absl::StatusOr<Sequence*> BlockManager::RequireSequence(SessionId session, SequenceId sequence) {
  const auto it = sequences_.find({session, sequence});
  if (it == sequences_.end()) return FindSequence(session, sequence).status();
  return it->second.get();
}

// --- Checks: nothing has changed when they fail ---

absl::Status BlockManager::SequenceCannotGoOn() {
  return MakeError(Reason::kKvLost,
                   "a copy failed, and the window has passed what must be computed again: the "
                   "sequence can only be freed");
}

// `named_tokens` need a place one day, `room_tokens` now.
absl::Status BlockManager::CheckRoom(TenantId tenant, uint64_t named_tokens, uint64_t room_tokens,
                                     absl::Span<const Match> matches) const {
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const uint32_t first = matches.empty() ? 0 : matches[w].first;
    if (absl::Status status = CheckRoom(tenant, w, named_tokens, room_tokens, first);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status BlockManager::CheckRoom(TenantId tenant, uint32_t window_index, uint64_t named_tokens,
                                     uint64_t room_tokens, uint32_t first_block) const {
  const WindowBlockManager& window = *windows_[window_index];
  const uint32_t quota = window.Quota(tenant);
  const uint32_t most_blocks = std::min(window.capacity(), quota);
  // A sliding window holds a long sequence piece by piece.
  const uint64_t tokens = window.sliding() ? room_tokens : named_tokens;
  const uint64_t blocks = window.sliding() ? uint64_t{first_block} + most_blocks : most_blocks;
  const uint64_t most =
      std::min<uint64_t>(blocks * tokens_per_block_.value(), std::numeric_limits<uint32_t>::max());
  if (tokens <= most && named_tokens <= std::numeric_limits<uint32_t>::max()) {
    return absl::OkStatus();
  }
  const std::string asked = absl::StrCat("room for ", tokens, " tokens asked for; ");
  if (quota < window.capacity()) {
    return MakeError(
        Reason::kInvalidCount,
        absl::StrCat(asked, "that is ", TableSize(tokens), " blocks of window ",
                     WindowName(window.window()), ", and the tenant's quota is ", quota));
  }
  return MakeError(Reason::kInvalidCount,
                   absl::StrCat(asked, "window ", WindowName(window.window()), " holds ", most));
}

absl::Status BlockManager::CheckNeeds(TenantId tenant, uint32_t window_index,
                                      const WindowBlockManager::Needs& needs) const {
  if (needs.met()) return absl::OkStatus();
  const WindowBlockManager& window = *windows_[window_index];
  const std::string in_window = absl::StrCat(" in window ", WindowName(window.window()));
  // Where both refuse, only the tenant can give back what its quota lacks.
  if (!needs.quota.met()) {
    return MakeError(
        Reason::kTenantQuotaExceeded,
        absl::StrCat(needs.quota.blocks, " blocks needed, ", needs.quota.available,
                     " are left of the tenant's quota of ", window.Quota(tenant), in_window));
  }
  return MakeError(Reason::kBlocksExhausted,
                   absl::StrCat(needs.pool.blocks, " blocks needed, ", needs.pool.available,
                                " are free or evictable", in_window));
}

absl::Status BlockManager::CheckGrowth(const Sequence& sequence, uint64_t room_tokens) const {
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    if (absl::Status status =
            CheckRoom(sequence.tenant, w, room_tokens, room_tokens, sequence.windows[w].first);
        !status.ok()) {
      return status;
    }
    const uint32_t blocks = windows_[w]->BlocksToGrow(sequence, TableSize(room_tokens));
    if (absl::Status status =
            CheckNeeds(sequence.tenant, w, windows_[w]->NeedsOf(blocks, sequence.tenant));
        !status.ok()) {
      return status;
    }
  }
  const uint64_t more = TableBytes(TableSize(room_tokens) - TableSize(sequence.room_tokens));
  if (more == 0) return absl::OkStatus();
  return sequence_accounts_.Check(sequence.tenant,
                                  {.bytes = more, .all_bytes = sequence.kept_bytes() + more});
}

uint64_t BlockManager::SequenceBytes() const {
  return sizeof(Sequence) + 192 + windows_.size() * sizeof(SequenceBlocks);
}

uint64_t BlockManager::TableBytes(uint64_t entries) const {
  return entries * (sizeof(BlockHandle) + sizeof(BlockId)) * windows_.size();
}

Ticket BlockManager::ReadyOf(const Sequence& sequence) const {
  Ticket ready;
  if (copies_.idle()) return ready;
  const uint32_t computed = tokens_per_block_.BlockForToken(sequence.computed_tokens);
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const SequenceBlocks& blocks = sequence.windows[w];
    for (size_t i = blocks.first; i < blocks.table.size(); ++i) {
      // A sequence's slots are in the primary tier. What it is still to write, a copy may read.
      const SlotRef slot{Tier::kPrimary, blocks.table[i].slot};
      ready = std::max(ready, i < computed ? copies_.Arrival(w, slot) : copies_.LastTouch(w, slot));
    }
  }
  return ready;
}

absl::Status BlockManager::CheckCommit(const Sequence& sequence, uint64_t token_count,
                                       uint64_t room_tokens, uint32_t computed_tokens,
                                       uint32_t known_losses) const {
  if (sequence.must_be_freed) return SequenceCannotGoOn();
  if (known_losses > sequence.losses) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("known_losses ", known_losses, " of a sequence with ",
                                  sequence.losses, " losses"));
  }
  if (computed_tokens == 0) return absl::OkStatus();
  if (known_losses < sequence.losses) {
    return MakeError(Reason::kKvLost, absl::StrCat("a copy failed: only ", sequence.computed_tokens,
                                                   " tokens are computed; the commit knows of ",
                                                   known_losses, " losses of ", sequence.losses));
  }
  if (computed_tokens < sequence.computed_tokens) {
    return MakeError(
        Reason::kComputedBackwards,
        absl::StrCat("computed_tokens ", computed_tokens, " is below ", sequence.computed_tokens));
  }
  if (computed_tokens > token_count) {
    return MakeError(Reason::kComputedBeyondTokens,
                     absl::StrCat("computed_tokens ", computed_tokens, " is above the ",
                                  token_count, " tokens named"));
  }
  if (computed_tokens > room_tokens) {
    return MakeError(Reason::kRoomExceeded, absl::StrCat("computed_tokens ", computed_tokens,
                                                         " is above the room of ", room_tokens));
  }
  return absl::OkStatus();
}

// --- Changes: everything was checked ---

BlockManager::Growth BlockManager::Grow(OperationScope& op, Sequence& sequence,
                                        uint32_t room_tokens, uint32_t computed_tokens) {
  const uint32_t old_size = TableSize(sequence.room_tokens);
  const uint32_t size = TableSize(room_tokens);
  Growth growth{.first_block = old_size, .blocks = size - old_size, .sequence = &sequence};
  for (const auto& window : windows_) {
    if (sequence.borrows_tail && window->MustCopyTail(sequence)) {
      growth.first_block = old_size - 1;
      growth.blocks = size - old_size + 1;
    }
    window->Grow(op, sequence, size, computed_tokens);
  }
  sequence.borrows_tail = false;
  sequence.charge.Resize(sequence.charge.bytes() + TableBytes(size - old_size));
  const uint32_t old_room_tokens = std::exchange(sequence.room_tokens, room_tokens);
  PlaceWaiting(sequence, old_room_tokens);
  if (!sequence.has_waiting_tokens()) sequence.named = nullptr;
  return growth;
}

// Names the next tokens. Those with room go to their blocks; the rest is in `named` already.
void BlockManager::Place(Sequence& sequence, absl::Span<const TokenId> tokens) {
  const size_t room = sequence.room_tokens - std::min(sequence.room_tokens, sequence.token_count);
  WriteTokens(sequence, sequence.token_count, tokens.first(std::min(room, tokens.size())));
  sequence.token_count += static_cast<uint32_t>(tokens.size());
}

void BlockManager::PlaceWaiting(Sequence& sequence, uint32_t old_room_tokens) {
  if (sequence.token_count <= old_room_tokens) return;
  const uint32_t end = std::min(sequence.token_count, sequence.room_tokens);
  const absl::Span<const TokenId> named = sequence.named->value;
  WriteTokens(sequence, old_room_tokens,
              named.subspan(old_room_tokens - sequence.named_begin, end - old_room_tokens));
}

void BlockManager::WriteTokens(Sequence& sequence, uint32_t position,
                               absl::Span<const TokenId> tokens) {
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->WriteTokens(sequence, position, tokens);
  }
}

void BlockManager::Commit(OperationScope& op, Sequence& sequence, absl::Span<const TokenId> tokens,
                          uint32_t computed_tokens) {
  Place(sequence, tokens);
  const uint32_t before = sequence.computed_tokens;
  if (computed_tokens <= before) return;
  sequence.computed_tokens = computed_tokens;
  const bool fills_block =
      tokens_per_block_.BlockForToken(computed_tokens) != tokens_per_block_.BlockForToken(before);
  for (const auto& window : windows_) {
    if (fills_block || window->sliding()) window->Publish(op, sequence);
  }
}

// Sequences that hold the lost bytes have to compute them again. Cost: O(their tables).
void BlockManager::Shorten(const CopyTracker::Lost& lost) {
  for (const SequenceKey& key : lost.readers) {
    Sequence& sequence = *sequences_.at(key);
    const std::optional<uint32_t> entry = windows_[lost.window]->FindEntry(sequence, lost.block.id);
    PAGODA_CHECK(entry.has_value(), "a copy's readers have its target in their tables");
    const uint32_t left = *entry * tokens_per_block_.value();
    if (left >= sequence.computed_tokens) continue;
    sequence.computed_tokens = left;
    sequence.must_be_freed = !CanGoOn(info_, sequence);
    if (sequence.must_be_freed) sequence.computed_tokens = 0;
    if (sequence.losses++ == sequence.known_losses) {
      RequireSession(key.session).shortened.insert(key.sequence);
    }
  }
}

void BlockManager::EndSequence(OperationScope& op, SequenceKey key,
                               WindowBlockManager::ComputedTail tail) {
  const auto it = sequences_.find(key);
  PAGODA_CHECK(it != sequences_.end(), "a session's sequences exist");
  for (const auto& window : windows_) window->End(op, *it->second, tail);
  sequences_.erase(it);
}

}  // namespace pagoda
