// The half of BlockManager that runs sequences: each operation checks everything first, then
// changes every window.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {

absl::StatusOr<uint32_t> BlockManager::AddSequence(SessionId session, SequenceId sequence,
                                                   const NamespaceKey& name_space,
                                                   absl::Span<const TokenId> tokens,
                                                   uint32_t room_tokens, absl::Time now) {
  const SequenceKey key{session, sequence};
  if (sequences_.contains(key)) {
    return MakeError(Reason::kSequenceExists,
                     absl::StrCat("sequence ", sequence.value(), " exists already"));
  }
  if (tokens.empty()) return MakeError(Reason::kInvalidCount, "a sequence needs a token");
  if (name_space.cache_salt.size() > kMaxCacheSaltBytes) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("a salt of ", name_space.cache_salt.size(), " bytes; at most ",
                                  kMaxCacheSaltBytes, " are allowed"));
  }

  const std::vector<WindowBlockManager::Match> matches = FindPrefixes(name_space, tokens);
  const uint32_t matched = matches.front().tokens;
  const uint64_t wanted = room_tokens == 0 ? tokens.size() : room_tokens;
  const uint64_t room = std::max<uint64_t>(wanted, matched);
  if (absl::Status status = CheckRoom(std::max<uint64_t>(room, tokens.size())); !status.ok()) {
    return status;
  }
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const WindowBlockManager& window = *windows_[w];
    const uint32_t new_blocks = window.tokens_per_block().BlocksFor(room) - matches[w].num_blocks();
    const uint32_t available = window.available() - window.UnheldIn(matches[w]);
    if (absl::Status status = CheckGrowth(w, new_blocks, available); !status.ok()) return status;
  }

  recorder_.BeginOperation(now);
  auto added = std::make_unique<Sequence>();
  added->windows.resize(windows_.size());
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->Begin(added->windows[w], name_space, matches[w]);
    windows_[w]->CountLookup(static_cast<uint32_t>(tokens.size()), matched);
  }
  added->token_count = added->computed_tokens = matched;
  added->room_tokens = matched;
  Grow(*added, static_cast<uint32_t>(room));
  Place(*added, tokens.subspan(matched));
  sequences_.emplace(key, std::move(added));
  RequireSession(session).sequences.insert(sequence);
  CheckAccounting();
  return matched;
}

absl::StatusOr<uint32_t> BlockManager::ReserveTokens(SessionId session, SequenceId sequence,
                                                     uint32_t count, absl::Time now) {
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  if (count == 0) return MakeError(Reason::kInvalidCount, "room for 0 tokens asked for");
  const uint64_t room = uint64_t{(*found)->room_tokens} + count;
  if (absl::Status status = CheckGrowth(**found, room); !status.ok()) return status;

  recorder_.BeginOperation(now);
  const uint32_t added = Grow(**found, static_cast<uint32_t>(room));
  CheckAccounting();
  return added;
}

absl::StatusOr<uint32_t> BlockManager::CommitTokens(SessionId session, SequenceId sequence,
                                                    absl::Span<const TokenId> tokens,
                                                    uint32_t computed_tokens, absl::Time now) {
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  const uint64_t token_count = uint64_t{(*found)->token_count} + tokens.size();
  const uint32_t room = (*found)->room_tokens;
  if (!tokens.empty() && token_count > room) {
    return MakeError(Reason::kRoomExceeded,
                     absl::StrCat("sequence ", sequence.value(), " would have ", token_count,
                                  " tokens and room for ", room));
  }
  if (absl::Status status = CheckCommit(**found, token_count, room, computed_tokens);
      !status.ok()) {
    return status;
  }
  recorder_.BeginOperation(now);
  Commit(**found, tokens, computed_tokens);
  CheckAccounting();
  return (*found)->token_count;
}

absl::StatusOr<uint32_t> BlockManager::AppendTokens(SessionId session, SequenceId sequence,
                                                    absl::Span<const TokenId> tokens,
                                                    uint32_t computed_tokens, absl::Time now) {
  absl::StatusOr<Sequence*> found = RequireSequence(session, sequence);
  if (!found.ok()) return found.status();
  Sequence& growing = **found;
  const uint64_t token_count = uint64_t{growing.token_count} + tokens.size();
  const uint64_t room = std::max<uint64_t>(growing.room_tokens, token_count);
  if (absl::Status status = CheckCommit(growing, token_count, room, computed_tokens);
      !status.ok()) {
    return status;
  }
  // In most calls the token's place is in the last block, and nothing but that token is written.
  const bool needs_blocks =
      tokens_per_block_.BlocksFor(room) > tokens_per_block_.BlocksFor(growing.room_tokens) ||
      room > std::numeric_limits<uint32_t>::max();
  if (needs_blocks) {
    if (absl::Status status = CheckGrowth(growing, room); !status.ok()) return status;
  }
  recorder_.BeginOperation(now);
  const uint32_t added =
      needs_blocks || !growing.unplaced.empty() ? Grow(growing, static_cast<uint32_t>(room)) : 0;
  growing.room_tokens = static_cast<uint32_t>(room);
  Commit(growing, tokens, computed_tokens);
  CheckAccounting();
  return added;
}

absl::Status BlockManager::FreeSequence(SessionId session, SequenceId sequence, absl::Time now) {
  if (absl::Status status = RequireSequence(session, sequence).status(); !status.ok()) {
    return status;
  }
  recorder_.BeginOperation(now);
  EndSequence({session, sequence});
  RequireSession(session).sequences.erase(sequence);
  CheckAccounting();
  return absl::OkStatus();
}

uint32_t BlockManager::MatchPrefix(const NamespaceKey& name_space, absl::Span<const TokenId> tokens,
                                   std::vector<BlockHandle>* blocks) const {
  if (tokens.empty()) return 0;
  const std::vector<WindowBlockManager::Match> matches = FindPrefixes(name_space, tokens);
  if (blocks != nullptr) {
    blocks->clear();
    const WindowBlockManager::Match& match = matches.back();
    for (const BlockId id : match.blocks) blocks->push_back(windows_.back()->handle(id));
    if (match.tail != kNoBlock) blocks->push_back(windows_.back()->handle(match.tail));
  }
  return matches.back().tokens;
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

// One token must be computed to get logits, so the last one is not looked for.
std::vector<WindowBlockManager::Match> BlockManager::FindPrefixes(
    const NamespaceKey& name_space, absl::Span<const TokenId> tokens) const {
  PAGODA_CHECK(windows_.size() == 1, "with several windows a match must be cut to the shortest");
  const uint32_t limit = static_cast<uint32_t>(
      std::min<size_t>(tokens.size() - 1, std::numeric_limits<uint32_t>::max()));
  return {windows_.front()->FindPrefix(name_space, tokens, limit)};
}

// --- Checks: nothing has changed when they fail ---

absl::Status BlockManager::CheckRoom(uint64_t room_tokens) const {
  for (const auto& window : windows_) {
    const uint64_t most =
        std::min<uint64_t>(uint64_t{window->capacity()} * window->tokens_per_block().value(),
                           std::numeric_limits<uint32_t>::max());
    if (room_tokens > most) {
      return MakeError(Reason::kInvalidCount,
                       absl::StrCat("room for ", room_tokens, " tokens asked for; window ",
                                    WindowName(window->window()), " holds ", most));
    }
  }
  return absl::OkStatus();
}

absl::Status BlockManager::CheckGrowth(uint32_t window_index, uint32_t new_blocks,
                                       uint32_t available) const {
  if (new_blocks <= available) return absl::OkStatus();
  return MakeError(
      Reason::kBlocksExhausted,
      absl::StrCat(new_blocks, " blocks needed, ", available, " are free or evictable in window ",
                   WindowName(windows_[window_index]->window())));
}

absl::Status BlockManager::CheckGrowth(const Sequence& sequence, uint64_t room_tokens) const {
  if (absl::Status status = CheckRoom(room_tokens); !status.ok()) return status;
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const uint32_t blocks = windows_[w]->tokens_per_block().BlocksFor(room_tokens);
    const auto held = static_cast<uint32_t>(sequence.windows[w].table.size());
    if (absl::Status status = CheckGrowth(w, blocks - held, windows_[w]->available());
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status BlockManager::CheckCommit(const Sequence& sequence, uint64_t token_count,
                                       uint64_t room_tokens, uint32_t computed_tokens) const {
  if (computed_tokens == 0) return absl::OkStatus();
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

uint32_t BlockManager::Grow(Sequence& sequence, uint32_t room_tokens) {
  uint32_t added = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    SequenceBlocks& blocks = sequence.windows[w];
    added = windows_[w]->tokens_per_block().BlocksFor(room_tokens) -
            static_cast<uint32_t>(blocks.table.size());
    windows_[w]->Grow(blocks, added);
  }
  sequence.room_tokens = room_tokens;
  PlaceWaiting(sequence);
  return added;
}

// Names the next tokens: those with room go to their blocks, the rest waits.
void BlockManager::Place(Sequence& sequence, absl::Span<const TokenId> tokens) {
  const size_t room = sequence.room_tokens - std::min(sequence.room_tokens, sequence.token_count);
  const absl::Span<const TokenId> placed = tokens.first(std::min(room, tokens.size()));
  WriteTokens(sequence, sequence.token_count, placed);
  if (placed.size() < tokens.size()) {
    sequence.unplaced.insert(sequence.unplaced.end(), tokens.begin() + placed.size(), tokens.end());
  }
  sequence.token_count += static_cast<uint32_t>(tokens.size());
}

// Tokens that were named before they had a place get it, as far as the room goes.
void BlockManager::PlaceWaiting(Sequence& sequence) {
  absl::Span<const TokenId> waiting(sequence.unplaced);
  waiting.remove_prefix(sequence.unplaced_begin);
  if (waiting.empty()) return;
  const auto position = static_cast<uint32_t>(sequence.token_count - waiting.size());
  const size_t count = std::min<size_t>(waiting.size(), sequence.room_tokens - position);
  WriteTokens(sequence, position, waiting.first(count));
  sequence.unplaced_begin += count;
  if (count == waiting.size()) {
    sequence.unplaced = {};
    sequence.unplaced_begin = 0;
  }
}

void BlockManager::WriteTokens(Sequence& sequence, uint32_t position,
                               absl::Span<const TokenId> tokens) {
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->WriteTokens(sequence.windows[w], position, tokens);
  }
}

void BlockManager::Commit(Sequence& sequence, absl::Span<const TokenId> tokens,
                          uint32_t computed_tokens) {
  Place(sequence, tokens);
  const uint32_t full_before = tokens_per_block_.BlockForToken(sequence.computed_tokens);
  sequence.computed_tokens = std::max(sequence.computed_tokens, computed_tokens);
  if (tokens_per_block_.BlockForToken(sequence.computed_tokens) == full_before) return;
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->Publish(sequence.windows[w], sequence.computed_tokens);
  }
}

void BlockManager::EndSequence(SequenceKey key) {
  const auto it = sequences_.find(key);
  PAGODA_CHECK(it != sequences_.end(), "a session's sequences exist");
  for (size_t w = 0; w < windows_.size(); ++w) {
    windows_[w]->End(it->second->windows[w], it->second->computed_tokens);
  }
  sequences_.erase(it);
}

}  // namespace pagoda
