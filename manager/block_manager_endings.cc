// The part of BlockManager that ends sessions and quarantines: what they held is freed in chunks,
// so that no call waits long for the lock behind a large one.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {
namespace {

constexpr uint32_t kEverything = std::numeric_limits<uint32_t>::max();
// A chunk looks at ids and counts drains, too. So many take about as long as freeing a block.
constexpr uint64_t kIdsPerBlock = 64;
constexpr uint64_t kDrainsPerBlock = 8;
constexpr uint64_t kFewest = 4096;

}  // namespace

// --- The beginning ---

absl::Status BlockManager::CloseSession(SessionRef ref, absl::Time now, EndIn how) {
  const auto quarantine = quarantines_.find(ref.id);
  // An earlier run's quarantine is session 0's, which has no token: operators alone end it.
  const bool is_own = quarantine != quarantines_.end() && ref.id != SessionId{} &&
                      quarantine->second.token == ref.token;
  if (is_own) return ReleaseQuarantine(ref.id, now, how).status();
  Session* session = sessions_.Find(ref.id);
  if (session != nullptr && session->ending && session->may_write && session->token == ref.token) {
    session->may_write = false;  // The acknowledgement comes before there is a quarantine.
    FinishEndings(now, how);
    return absl::OkStatus();
  }
  if (absl::Status status = CheckSession(ref); !status.ok()) return status;
  BeginEnding(ref.id, SessionEnd::kClosed);
  FinishEndings(now, how);
  return absl::OkStatus();
}

size_t BlockManager::ExpireSessions(absl::Time now, EndIn how) {
  const std::vector<SessionId> expired = sessions_.Expired(now);
  for (const SessionId id : expired) BeginEnding(id, SessionEnd::kLeaseExpired);
  if (!expired.empty()) FinishEndings(now, how);
  return expired.size();
}

absl::Status BlockManager::EndSession(SessionId id, absl::Time now, EndIn how) {
  const Session* session = sessions_.Find(id);
  if (session == nullptr || session->ending) {
    return MakeError(Reason::kUnknownSession, absl::StrCat("there is no session ", id.value()));
  }
  if (session->lease == absl::InfiniteDuration()) {
    return MakeError(Reason::kPermissionDenied,
                     absl::StrCat("session ", id.value(), " is the daemon's own"));
  }
  BeginEnding(id, SessionEnd::kEndedByOperator);
  FinishEndings(now, how);
  return absl::OkStatus();
}

// A client that closes its session says that its kernels touch nothing of it any more. A session
// that ends otherwise may have a process that goes on writing.
void BlockManager::BeginEnding(SessionId id, SessionEnd how) {
  Session& session = RequireSession(id);
  session.ending = true;
  if (how == SessionEnd::kClosed) session.may_write = false;
  ++endings_begun_;
  endings_.push_back({.session = id,
                      .how = how,
                      .drops_tails = session.may_write,
                      .drains_below = session.may_write && !session.drains.empty()});
  ++session_counters_.ended[static_cast<size_t>(how)];
}

absl::StatusOr<uint32_t> BlockManager::ReleaseQuarantine(SessionId id, absl::Time now, EndIn how) {
  const auto it = quarantines_.find(id);
  if (it == quarantines_.end()) {
    return MakeError(Reason::kUnknownQuarantine,
                     absl::StrCat("nothing of session ", id.value(), " is quarantined"));
  }
  const uint32_t blocks = it->second.blocks;
  quarantined_blocks_ -= blocks;
  ++endings_begun_;
  endings_.push_back({.drains = std::move(it->second.drains),
                      .drains_charge = std::move(it->second.drains_charge)});
  quarantines_.erase(it);
  FinishEndings(now, how);
  return blocks;
}

bool BlockManager::IsEnding(SessionId id) const {
  const Session* session = sessions_.Find(id);
  return session != nullptr && session->ending;
}

// --- The chunks ---

void BlockManager::FinishEndings(absl::Time now, EndIn how) {
  if (how == EndIn::kChunks) return;
  while (ContinueEndings(now, kEverything)) {
  }
}

bool BlockManager::ContinueEndings(absl::Time now, uint32_t max_blocks) {
  if (endings_.empty()) return false;
  OperationScope op = BeginOperation(now);
  Ending& ending = endings_.front();
  Session* const session = ending.session.has_value() ? &RequireSession(*ending.session) : nullptr;
  const uint64_t held_before = HeldBlocks();
  const auto take_drains = [&] {
    // Its writer may have ended since.
    const bool ends_drains = session != nullptr && !session->may_write;
    if (!ends_drains || !ending.drains.empty()) return;
    std::swap(ending.drains, session->drains);
    ending.drains_below = false;
  };
  take_drains();
  if (!ending.drains.empty()) {
    EndDrains(op, ending.drains, max_blocks);
  } else if (session != nullptr && !session->sequences.empty()) {
    EndSequences(op, ending, max_blocks);
  } else if (session != nullptr && session->raw_blocks > 0) {
    FreeRawBlocks(op, ending, max_blocks);
  } else if (session != nullptr) {
    CountQuarantined(ending, max_blocks);
  }
  const uint64_t freed = held_before - HeldBlocks();
  if (session == nullptr) {
    session_counters_.reclaimed_from_quarantine += freed;
  } else {
    session_counters_.reclaimed_blocks[static_cast<size_t>(ending.how)] += freed;
  }
  OperationScope last = BeginOperation(now);
  take_drains();
  const bool has_blocks =
      session != nullptr && (!session->sequences.empty() || session->raw_blocks > 0 ||
                             ending.counted_drains < session->drains.size());
  SequenceAccounts::Charge& charge =
      session != nullptr ? session->drains_charge : ending.drains_charge;
  const size_t drains = ending.drains.size() + (session != nullptr ? session->drains.size() : 0);
  charge.ResizeAnyway(drains * sizeof(Drain));
  if (ending.drains.empty() && !has_blocks) {
    if (session != nullptr) CloseEnded(ending, now);
    endings_.pop_front();
  }
  EndOperation(last);
  return !endings_.empty();
}

void BlockManager::EndDrains(OperationScope& op, std::deque<Drain>& drains, uint32_t max_blocks) {
  for (uint32_t i = 0; i < max_blocks && !drains.empty(); ++i) {
    const Drain drain = drains.front();
    drains.pop_front();
    windows_[drain.window]->EndDrain(op, drain.block, drain.tenant);
  }
}

// Each sequence ends in an operation of its own.
void BlockManager::EndSequences(OperationScope& op, const Ending& ending, uint32_t max_blocks) {
  const SessionId id = *ending.session;
  Session& session = RequireSession(id);
  uint64_t ended = 0;
  while (ended < max_blocks && !session.sequences.empty()) {
    const SequenceKey key{id, *session.sequences.begin()};
    session.sequences.erase(session.sequences.begin());
    OperationScope one = BeginOperation(op.now, ending.drains_below ? &session : nullptr);
    const Sequence& sequence = *sequences_.at(key);
    for (const auto& window : windows_) {
      ended += sequence.windows[window->index()].table.size();
      if (session.may_write) window->HoldWritable(sequence, session);
    }
    ++ended;
    EndSequence(one, key,
                ending.drops_tails ? WindowBlockManager::ComputedTail::kDrop
                                   : WindowBlockManager::ComputedTail::kPublish);
  }
  // Forks that share a prefix drain it once for each of them.
  CompactDrains(op, session);
}

void BlockManager::FreeRawBlocks(OperationScope& op, Ending& ending, uint32_t max_blocks) {
  const SessionId id = *ending.session;
  Session& session = RequireSession(id);
  uint64_t looks = std::max(max_blocks * kIdsPerBlock, kFewest);
  uint64_t left = max_blocks;
  while (left > 0 && looks > 0 && session.raw_blocks > 0) {
    PAGODA_CHECK(ending.raw_window < windows_.size(), "a session's raw blocks are counted");
    WindowBlockManager& window = *windows_[ending.raw_window];
    const BlockId begin = ending.raw_next;
    const std::vector<BlockRef> blocks =
        window.NextRawBlocks(id, &ending.raw_next, left,
                             static_cast<uint32_t>(std::min(looks, uint64_t{window.num_ids()})));
    looks -= ending.raw_next.value() - begin.value();
    left -= blocks.size();
    if (ending.raw_next.value() == window.num_ids()) {
      ++ending.raw_window;
      ending.raw_next = BlockId{0};
    }
    if (blocks.empty()) continue;
    OperationScope one = BeginOperation(op.now, session.may_write ? &session : nullptr);
    one.tenant = TenantOf(id);
    FreeRaw(one, session, window, blocks);
    EndOperation(one);
  }
}

// --- Quarantine ---

// A bit for each id, because a set of a million ids takes half a second.
void BlockManager::CountQuarantined(Ending& ending, uint32_t max_blocks) {
  const std::deque<Drain>& drains = RequireSession(*ending.session).drains;
  const uint64_t end = ending.counted_drains + std::max(max_blocks * kDrainsPerBlock, kFewest);
  ending.counted.resize(windows_.size());
  for (; ending.counted_drains < std::min<uint64_t>(end, drains.size()); ++ending.counted_drains) {
    const Drain& drain = drains[ending.counted_drains];
    std::vector<bool>& window = ending.counted[drain.window];
    if (window.empty()) window.resize(windows_[drain.window]->num_ids());
    if (window[drain.block.value()]) continue;
    window[drain.block.value()] = true;
    ++ending.quarantined_blocks;
  }
}

void BlockManager::CloseEnded(Ending& ending, absl::Time now) {
  Session& session = RequireSession(*ending.session);
  PAGODA_CHECK(session.raw_blocks == 0, "a session's raw blocks are counted");
  if (!session.drains.empty()) {
    quarantined_blocks_ += ending.quarantined_blocks;
    quarantines_.emplace(*ending.session,
                         Quarantine{.token = session.token,
                                    .client_name = session.client_name,
                                    .tenant = session.tenant,
                                    .since = now,
                                    .drains = std::move(session.drains),
                                    .drains_charge = std::move(session.drains_charge),
                                    .blocks = ending.quarantined_blocks});
  }
  sessions_.Close(*ending.session);
}

void BlockManager::QuarantineFree(absl::Time now) {
  OperationScope op = BeginOperation(now);
  Quarantine quarantine{.client_name = "earlier run", .since = now};
  for (const auto& window : windows_) window->HoldFree(op, quarantine.drains);
  quarantine.blocks = static_cast<uint32_t>(quarantine.drains.size());  // Each slot is held once.
  quarantine.drains_charge = {&sequence_accounts_, kCommons, 0, 0};
  quarantine.drains_charge.ResizeAnyway(quarantine.drains.size() * sizeof(Drain));
  quarantined_blocks_ += quarantine.blocks;
  if (quarantine.blocks > 0) quarantines_.emplace(SessionId{}, std::move(quarantine));
  EndOperation(op);
}

}  // namespace pagoda
