// The part of BlockManager that knows sessions: how they live, and what becomes of what they had.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
#include "manager/fault.h"
#include "pools/check.h"
#include "pools/error.h"

namespace pagoda {

// --- Sessions ---

absl::StatusOr<BlockManager::OpenedSession> BlockManager::OpenSession(std::string client_name,
                                                                      absl::Duration lease,
                                                                      absl::Time now,
                                                                      TenantId tenant,
                                                                      SessionToken token) {
  BeginOperation(now);
  PAGODA_CHECK(tenant.value() < tenants_.size(), "a session is of a tenant that there is");
  absl::StatusOr<SessionRef> ref =
      sessions_.Open(std::move(client_name), lease, now, tenant, token);
  if (!ref.ok()) return ref.status();
  return OpenedSession{.ref = *ref, .lease = lease};
}

absl::Status BlockManager::CheckSession(SessionRef ref) const {
  return sessions_.Find(ref).status();
}

absl::StatusOr<absl::Duration> BlockManager::KeepAlive(SessionRef ref, absl::Time now) {
  absl::StatusOr<Session*> session = sessions_.Find(ref);
  if (!session.ok()) return session.status();
  (*session)->deadline = now + (*session)->lease;
  return (*session)->lease;
}

absl::Status BlockManager::AttachStream(SessionRef ref) {
  absl::StatusOr<Session*> session = sessions_.Find(ref);
  if (!session.ok()) return session.status();
  ++(*session)->streams;
  return absl::OkStatus();
}

void BlockManager::DetachStream(SessionId id, absl::Time now) {
  Session* session = sessions_.Find(id);
  if (session == nullptr) return;  // Closed while the stream was open.
  PAGODA_CHECK(session->streams > 0, "a stream is detached once");
  --session->streams;
  session->deadline = now + session->lease;
}

absl::Status BlockManager::CloseSession(SessionRef ref, absl::Time now) {
  const auto quarantine = quarantines_.find(ref.id);
  // An earlier run's quarantine is session 0's, which has no token: operators alone end it.
  const bool is_own =
      quarantine != quarantines_.end() && ref.id != SessionId{} &&
      (quarantine->second.token == ref.token || PAGODA_FAULT(QuarantineEndedByOthers));
  if (is_own) {
    return ReleaseQuarantine(ref.id, now).status();
  }
  if (absl::Status status = CheckSession(ref); !status.ok()) return status;
  FinishSession(ref.id, SessionEnd::kClosed, now);
  return absl::OkStatus();
}

size_t BlockManager::ExpireSessions(absl::Time now) {
  const std::vector<SessionId> expired = sessions_.Expired(now);
  for (const SessionId id : expired) FinishSession(id, SessionEnd::kLeaseExpired, now);
  return expired.size();
}

absl::Status BlockManager::NoteWriter(SessionRef ref) {
  absl::StatusOr<Session*> session = sessions_.Find(ref);
  if (!session.ok()) return session.status();
  (*session)->may_write = true;
  return absl::OkStatus();
}

void BlockManager::NoteWriterGone(SessionId id) {
  if (Session* session = sessions_.Find(id); session != nullptr) session->may_write = false;
}

absl::Status BlockManager::EndSession(SessionId id, absl::Time now) {
  if (sessions_.Find(id) == nullptr) {
    return MakeError(Reason::kUnknownSession, absl::StrCat("there is no session ", id.value()));
  }
  if (sessions_.Get(id).lease == absl::InfiniteDuration()) {
    return MakeError(Reason::kPermissionDenied,
                     absl::StrCat("session ", id.value(), " is the daemon's own"));
  }
  FinishSession(id, SessionEnd::kEndedByOperator, now);
  return absl::OkStatus();
}

// A client that closes its session says that it is done with what it released in its last steps,
// too. Who ends without having said so may go on writing, if it can write at all.
void BlockManager::FinishSession(SessionId id, SessionEnd end, absl::Time now) {
  BeginOperation(now);
  Session& session = RequireSession(id);
  const bool may_write = end != SessionEnd::kClosed && session.may_write;
  const uint64_t held_before = HeldBlocks();
  // What drains already may lie below what the sequences hold: it must not outlive that.
  const bool drains_below = may_write && !session.drains.empty();
  const absl::btree_set<SequenceId> sequences = std::exchange(session.sequences, {});
  if (may_write && !PAGODA_FAULT(QuarantineForgotten)) {
    for (const SequenceId name : sequences) {
      const Sequence& sequence = *sequences_.at({id, name});
      for (const auto& window : windows_) window->HoldWritable(sequence, session);
    }
  }
  const SessionId batch = std::exchange(draining_session_, drains_below ? id : SessionId{});
  for (const SequenceId sequence : sequences) {
    BeginOperation(drains_below ? id : SessionId{}, now);
    // Behind a tail's tokens the client may still write, so nobody may go on there.
    EndSequence({id, sequence}, may_write ? WindowBlockManager::ComputedTail::kDrop
                                          : WindowBlockManager::ComputedTail::kPublish);
  }
  if (may_write) draining_session_ = id;  // Its raw blocks drain.
  for (const auto& window : windows_) {
    if (session.raw_blocks == 0) break;
    const std::vector<BlockRef> blocks = window->RawBlocksOf(id);
    if (blocks.empty()) continue;
    const absl::Status status = FreeBlocks(id, window->window(), blocks, now);
    PAGODA_CHECK(status.ok(), "a session may free its own raw blocks");
  }
  PAGODA_CHECK(session.raw_blocks == 0, "a session's raw blocks are counted");
  draining_session_ = batch == id ? SessionId{} : batch;
  BeginOperation(now);
  std::deque<Drain> drains = std::exchange(session.drains, {});
  if (may_write && !drains.empty()) {
    AddQuarantine(id, {.token = session.token,
                       .client_name = session.client_name,
                       .tenant = session.tenant,
                       .since = now,
                       .drains = std::move(drains)});
  } else {
    EndDrains(drains);
  }
  sessions_.Close(id);
  ++session_counters_.ended[static_cast<size_t>(end)];
  session_counters_.reclaimed_blocks[static_cast<size_t>(end)] += held_before - HeldBlocks();
  EndOperation();
}

void BlockManager::EndDrains(const std::deque<Drain>& drains) {
  for (const Drain& drain : drains) windows_[drain.window]->EndDrain(drain.block, drain.tenant);
}

// Forks that share blocks and are freed leave a drain each for every one of them: without this a
// client that names steps and completes none makes the list as long as it likes. Amortised O(1) a
// drain.
void BlockManager::CompactDrains(Session& session) {
  std::deque<Drain>& drains = session.drains;
  if (drains.size() < session.compact_drains_at) return;
  absl::flat_hash_set<std::tuple<uint16_t, TenantId, BlockId>> later;
  std::deque<Drain> kept;
  for (size_t i = drains.size(); i-- > 0;) {
    const Drain& drain = drains[i];
    if (later.emplace(drain.window, drain.tenant, drain.block).second) {
      kept.push_front(drain);
    } else {
      windows_[drain.window]->EndDrain(drain.block, drain.tenant);  // The later one holds on.
    }
  }
  drains = std::move(kept);
  session.compact_drains_at = std::max(Session::kFewDrains, 2 * drains.size());
}

// --- Quarantine ---

void BlockManager::AddQuarantine(SessionId id, Quarantine quarantine) {
  // A set of a million ids takes half a second; a bit for each takes milliseconds.
  std::vector<std::vector<bool>> counted(windows_.size());
  for (const Drain& drain : quarantine.drains) {
    std::vector<bool>& window = counted[drain.window];
    if (window.empty()) window.resize(windows_[drain.window]->num_ids());
    if (window[drain.block.value()]) continue;
    window[drain.block.value()] = true;
    ++quarantine.blocks;
  }
  quarantined_blocks_ += quarantine.blocks;
  quarantines_.emplace(id, std::move(quarantine));
}

std::vector<SessionId> BlockManager::QuarantinedSessions(SessionId from, size_t limit) const {
  std::vector<SessionId> sessions;
  for (auto it = quarantines_.lower_bound(from); it != quarantines_.end(); ++it) {
    if (sessions.size() == limit) break;
    sessions.push_back(it->first);
  }
  return sessions;
}

absl::StatusOr<uint32_t> BlockManager::ReleaseQuarantine(SessionId id, absl::Time now) {
  BeginOperation(now);
  const auto it = quarantines_.find(id);
  if (it == quarantines_.end()) {
    return MakeError(Reason::kUnknownQuarantine,
                     absl::StrCat("nothing of session ", id.value(), " is quarantined"));
  }
  const uint32_t blocks = it->second.blocks;
  const uint64_t held_before = HeldBlocks();
  EndDrains(it->second.drains);
  session_counters_.reclaimed_from_quarantine += held_before - HeldBlocks();
  quarantined_blocks_ -= blocks;
  quarantines_.erase(it);
  EndOperation();
  return blocks;
}

std::vector<QuarantineInfo> BlockManager::Quarantines() const {
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

void BlockManager::QuarantineFree(absl::Time now) {
  BeginOperation(now);
  Quarantine quarantine{.client_name = "earlier run", .since = now};
  for (const auto& window : windows_) window->HoldFree(quarantine.drains);
  if (!quarantine.drains.empty()) AddQuarantine(SessionId{}, std::move(quarantine));
  EndOperation();
}

// --- Batches ---

absl::Status BlockManager::BeginBatch(SessionId id, StepRange steps, absl::Time now) {
  Session& session = RequireSession(id);
  if (steps.step < steps.completed_step || (steps.step != 0 && steps.step < session.step) ||
      (steps.step != 0 && steps.completed_step < session.completed_step)) {
    return MakeError(Reason::kStepBackwards,
                     absl::StrCat("step ", steps.step, " with completed_step ",
                                  steps.completed_step, " after step ", session.step,
                                  " with completed_step ", session.completed_step));
  }
  BeginOperation(now);
  ResumeBatch(id, steps);
  if (steps.step == 0) return absl::OkStatus();
  session.step = steps.step;
  session.completed_step = steps.completed_step;
  const uint64_t completed = steps.completed_step + (PAGODA_FAULT(DrainTooEarly) ? 1 : 0);
  while (!session.drains.empty() && session.drains.front().step <= completed) {
    const Drain drain = session.drains.front();
    session.drains.pop_front();
    windows_[drain.window]->EndDrain(drain.block, drain.tenant);
  }
  EndOperation();
  return absl::OkStatus();
}

void BlockManager::ResumeBatch(SessionId id, StepRange steps) {
  // Without a step, what still drains may lie below what the batch lets go: it must not outlive
  // that.
  const bool drains = steps.step != 0 || !RequireSession(id).drains.empty();
  draining_session_ = drains ? id : SessionId{};
}

std::vector<ShortenedSequence> BlockManager::Shortened(SessionId id) {
  absl::btree_set<SequenceId>& names = RequireSession(id).shortened;
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

}  // namespace pagoda
