#include "manager/sequences/session_endings.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "manager/window/window_sequences.h"

namespace pagoda {
namespace {

constexpr uint32_t kEverything = std::numeric_limits<uint32_t>::max();
// Ids and deferred releases that a chunk looks at instead of freeing one block: they take about as
// long.
constexpr uint64_t kIdsPerBlock = 64;
constexpr uint64_t kDeferredPerBlock = 8;
constexpr uint64_t kFewest = 4096;

}  // namespace

// --- The beginning ---

absl::Status SessionEndings::CloseSession(SessionRef ref, absl::Time now, EndIn how) {
  const auto quarantine = quarantines_.find(ref.id);
  // The quarantine of an earlier run is that of session 0 and has no token. Only operators end it.
  const bool is_own = quarantine != quarantines_.end() && ref.id != SessionId{} &&
                      quarantine->second.token == ref.token;
  if (is_own) return ReleaseQuarantine(ref.id, now, how).status();
  Session* session = sessions_.Find(ref.id);
  if (session != nullptr && session->ending && session->may_write && session->token == ref.token) {
    session->may_write = false;  // The client acknowledged before the quarantine began.
    Finish(now, how);
    return absl::OkStatus();
  }
  if (absl::Status status = sessions_.Find(ref).status(); !status.ok()) return status;
  Begin(ref.id, SessionEnd::kClosed);
  Finish(now, how);
  return absl::OkStatus();
}

size_t SessionEndings::ExpireSessions(absl::Time now, EndIn how, absl::Duration pause) {
  if (pause > absl::ZeroDuration()) sessions_.Prolong(pause, now);
  const std::vector<SessionId> expired = sessions_.Expired(now);
  for (const SessionId id : expired) Begin(id, SessionEnd::kLeaseExpired);
  if (!expired.empty()) Finish(now, how);
  return expired.size();
}

absl::Status SessionEndings::EndSession(SessionId id, absl::Time now, EndIn how) {
  const Session* session = sessions_.Find(id);
  if (session == nullptr || session->ending) {
    return MakeError(Reason::kUnknownSession, absl::StrCat("there is no session ", id.value()));
  }
  if (session->lease == absl::InfiniteDuration()) {
    return MakeError(Reason::kPermissionDenied,
                     absl::StrCat("session ", id.value(), " is the daemon's own"));
  }
  Begin(id, SessionEnd::kEndedByOperator);
  Finish(now, how);
  return absl::OkStatus();
}

// A client that closes its session promises that its kernels no longer touch its blocks. After any
// other end, a process of the client can still write.
void SessionEndings::Begin(SessionId id, SessionEnd how) {
  Session& session = sessions_.Require(id);
  session.ending = true;
  if (how == SessionEnd::kClosed) session.may_write = false;
  ++begun_;
  endings_.push_back({.session = id,
                      .how = how,
                      .drops_tails = session.may_write,
                      .deferred_below = session.may_write && !session.deferred.empty()});
  ++counters_.ended[static_cast<size_t>(how)];
}

absl::StatusOr<uint32_t> SessionEndings::ReleaseQuarantine(SessionId id, absl::Time now,
                                                           EndIn how) {
  const auto it = quarantines_.find(id);
  if (it == quarantines_.end()) {
    return MakeError(Reason::kUnknownQuarantine,
                     absl::StrCat("nothing of session ", id.value(), " is quarantined"));
  }
  const uint32_t blocks = it->second.blocks;
  quarantined_blocks_ -= blocks;
  ++begun_;
  endings_.push_back({.deferred = std::move(it->second.deferred),
                      .deferred_charge = std::move(it->second.deferred_charge)});
  quarantines_.erase(it);
  Finish(now, how);
  return blocks;
}

bool SessionEndings::IsEnding(SessionId id) const {
  const Session* session = sessions_.Find(id);
  return session != nullptr && session->ending;
}

// --- The chunks ---

void SessionEndings::Finish(absl::Time now, EndIn how) {
  if (how == EndIn::kChunks) return;
  while (ContinueEndings(now, kEverything)) {
  }
}

bool SessionEndings::ContinueEndings(absl::Time now, uint32_t max_blocks) {
  if (endings_.empty()) return false;
  OperationScope op = runner_.Begin(now);
  Ending& ending = endings_.front();
  Session* const session =
      ending.session.has_value() ? &sessions_.Require(*ending.session) : nullptr;
  const uint64_t held_before = windows_.HeldBlocks();
  const auto take_deferred = [&] {
    // The session's writer may have ended meanwhile.
    const bool ends_deferred = session != nullptr && !session->may_write;
    if (!ends_deferred || !ending.deferred.empty()) return;
    std::swap(ending.deferred, session->deferred);
    ending.deferred_below = false;
  };
  take_deferred();
  if (!ending.deferred.empty()) {
    deferred_.EndFirst(op, ending.deferred, max_blocks);
  } else if (session != nullptr && !session->sequences.empty()) {
    EndSequences(op, ending, max_blocks);
  } else if (session != nullptr && session->raw_blocks > 0) {
    FreeRawBlocks(op, ending, max_blocks);
  } else if (session != nullptr) {
    CountQuarantined(ending, max_blocks);
  }
  const uint64_t freed = held_before - windows_.HeldBlocks();
  if (session == nullptr) {
    counters_.reclaimed_from_quarantine += freed;
  } else {
    counters_.reclaimed_blocks[static_cast<size_t>(ending.how)] += freed;
  }
  OperationScope last = runner_.Begin(now);
  take_deferred();
  const bool has_blocks =
      session != nullptr && (!session->sequences.empty() || session->raw_blocks > 0 ||
                             ending.counted_deferred < session->deferred.size());
  SequenceAccounts::Charge& charge =
      session != nullptr ? session->deferred_charge : ending.deferred_charge;
  const size_t deferred =
      ending.deferred.size() + (session != nullptr ? session->deferred.size() : 0);
  charge.ResizeAnyway(deferred * sizeof(DeferredRelease));
  if (ending.deferred.empty() && !has_blocks) {
    if (session != nullptr) CloseEnded(ending, now);
    endings_.pop_front();
  }
  runner_.End(last);
  return !endings_.empty();
}

// Ends each sequence in its own operation.
void SessionEndings::EndSequences(OperationScope& op, const Ending& ending, uint32_t max_blocks) {
  const SessionId id = *ending.session;
  Session& session = sessions_.Require(id);
  uint64_t ended = 0;
  while (ended < max_blocks && !session.sequences.empty()) {
    const SequenceKey key{id, *session.sequences.begin()};
    session.sequences.erase(session.sequences.begin());
    OperationScope one = runner_.Begin(op.now, ending.deferred_below ? &session : nullptr);
    const Sequence& sequence = sequences_.Get(key);
    for (const auto& window : windows_) {
      ended += sequence.windows[window->index()].table.size();
      if (session.may_write) window->sequences().HoldWritable(sequence, session);
    }
    ++ended;
    sequences_.End(one, key,
                   ending.drops_tails ? WindowSequences::ComputedTail::kDrop
                                      : WindowSequences::ComputedTail::kPublish);
  }
  // Forks that share a prefix have a deferred release of it each.
  deferred_.Compact(op, session);
}

void SessionEndings::FreeRawBlocks(OperationScope& op, Ending& ending, uint32_t max_blocks) {
  const SessionId id = *ending.session;
  Session& session = sessions_.Require(id);
  uint64_t looks = std::max(max_blocks * kIdsPerBlock, kFewest);
  uint64_t left = max_blocks;
  while (left > 0 && looks > 0 && session.raw_blocks > 0) {
    PAGODA_CHECK(ending.raw_window < windows_.size(), "a session's raw blocks are counted");
    WindowBlockManager& window = *windows_[ending.raw_window];
    const BlockId begin = ending.raw_next;
    const std::vector<BlockRef> blocks = window.raw_blocks().NextRawBlocks(
        id, &ending.raw_next, left,
        static_cast<uint32_t>(std::min(looks, uint64_t{window.num_ids()})));
    looks -= ending.raw_next.value() - begin.value();
    left -= blocks.size();
    if (ending.raw_next.value() == window.num_ids()) {
      ++ending.raw_window;
      ending.raw_next = BlockId{0};
    }
    if (blocks.empty()) continue;
    OperationScope one = runner_.Begin(op.now, session.may_write ? &session : nullptr);
    one.tenant = sessions_.TenantOf(id);
    raw_blocks_.Free(one, session, window, blocks);
    runner_.End(one);
  }
}

// --- Quarantine ---

// A bit for each id: a set of a million ids would take half a second.
void SessionEndings::CountQuarantined(Ending& ending, uint32_t max_blocks) {
  const std::deque<DeferredRelease>& deferred = sessions_.Require(*ending.session).deferred;
  const uint64_t end = ending.counted_deferred + std::max(max_blocks * kDeferredPerBlock, kFewest);
  ending.counted.resize(windows_.size());
  for (; ending.counted_deferred < std::min<uint64_t>(end, deferred.size());
       ++ending.counted_deferred) {
    const DeferredRelease& release = deferred[ending.counted_deferred];
    std::vector<bool>& window = ending.counted[release.window];
    if (window.empty()) window.resize(windows_[release.window]->num_ids());
    if (window[release.block.value()]) continue;
    window[release.block.value()] = true;
    ++ending.quarantined_blocks;
  }
}

void SessionEndings::CloseEnded(Ending& ending, absl::Time now) {
  Session& session = sessions_.Require(*ending.session);
  PAGODA_CHECK(session.raw_blocks == 0, "a session's raw blocks are counted");
  if (!session.deferred.empty()) {
    quarantined_blocks_ += ending.quarantined_blocks;
    quarantines_.emplace(*ending.session,
                         Quarantine{.token = session.token,
                                    .client_name = session.client_name,
                                    .tenant = session.tenant,
                                    .since = now,
                                    .deferred = std::move(session.deferred),
                                    .deferred_charge = std::move(session.deferred_charge),
                                    .blocks = ending.quarantined_blocks});
  }
  sessions_.Close(*ending.session);
}

void SessionEndings::QuarantineFree(absl::Time now) {
  OperationScope op = runner_.Begin(now);
  Quarantine quarantine{.client_name = "earlier run", .since = now};
  for (const auto& window : windows_) window->holds().HoldFree(op, quarantine.deferred);
  quarantine.blocks = static_cast<uint32_t>(quarantine.deferred.size());  // Each slot is held once.
  quarantine.deferred_charge = {&accounts_, kDefaultTenant, 0, 0};
  quarantine.deferred_charge.ResizeAnyway(quarantine.deferred.size() * sizeof(DeferredRelease));
  quarantined_blocks_ += quarantine.blocks;
  if (quarantine.blocks > 0) quarantines_.emplace(SessionId{}, std::move(quarantine));
  runner_.End(op);
}

std::vector<SessionId> SessionEndings::QuarantinedSessions(SessionId from, size_t limit) const {
  std::vector<SessionId> sessions;
  for (auto it = quarantines_.lower_bound(from); it != quarantines_.end(); ++it) {
    if (sessions.size() == limit) break;
    sessions.push_back(it->first);
  }
  return sessions;
}

std::vector<QuarantineInfo> SessionEndings::Quarantines() const {
  std::vector<QuarantineInfo> list;
  for (const auto& [id, quarantine] : quarantines_) {
    list.push_back({.session = id,
                    .client_name = quarantine.client_name,
                    .tenant = quarantine.tenant,
                    .since = quarantine.since,
                    .blocks = quarantine.blocks});
  }
  return list;
}

void SessionEndings::AddStats(ManagerStats* stats) const {
  stats->quarantines = quarantines_.size();
  stats->quarantined_blocks = quarantined_blocks_;
  stats->session_counters = counters_;
}

// --- For tests ---

void SessionEndings::AddHolders(size_t window_index, WindowBlockManager::Holders* holders) const {
  const auto add = [&](const std::deque<DeferredRelease>& deferred) {
    for (const DeferredRelease& release : deferred) {
      if (release.window == window_index)
        (*holders)[release.block.value()].push_back(release.tenant);
    }
  };
  for (const Ending& ending : endings_) add(ending.deferred);
  for (const auto& [id, quarantine] : quarantines_) add(quarantine.deferred);
}

void SessionEndings::AddDeferredBytes(std::vector<uint64_t>* bytes) const {
  for (const auto& [id, quarantine] : quarantines_) {
    (*bytes)[quarantine.tenant.value()] += quarantine.deferred_charge.bytes();
  }
  for (const Ending& ending : endings_) {
    (*bytes)[ending.deferred_charge.tenant().value()] += ending.deferred_charge.bytes();
  }
}

std::map<SessionId, size_t> SessionEndings::DeferredOfSessions() const {
  std::map<SessionId, size_t> deferred;
  for (const Ending& ending : endings_) {
    if (ending.session.has_value()) deferred[*ending.session] += ending.deferred.size();
  }
  return deferred;
}

void SessionEndings::CheckQuarantines() const {
  uint64_t quarantined = 0;
  for (const auto& [id, quarantine] : quarantines_) {
    std::set<std::pair<uint32_t, BlockId>> blocks;
    for (const DeferredRelease& release : quarantine.deferred)
      blocks.emplace(release.window, release.block);
    PAGODA_CHECK(blocks.size() == quarantine.blocks, "a quarantine counts each block once");
    quarantined += blocks.size();
  }
  PAGODA_CHECK(quarantined == quarantined_blocks_, "the quarantined blocks are counted");
}

}  // namespace pagoda
