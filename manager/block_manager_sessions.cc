// The part of BlockManager that knows living sessions, and lists what is quarantined.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "manager/block_manager.h"
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
  RequireSession(ref->id).drains_charge = {&sequence_accounts_, tenant, 0, 0};
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

absl::Status BlockManager::NoteWriter(SessionRef ref) {
  absl::StatusOr<Session*> session = sessions_.Find(ref);
  if (!session.ok()) return session.status();
  (*session)->may_write = true;
  return absl::OkStatus();
}

void BlockManager::NoteWriterGone(SessionId id) {
  if (Session* session = sessions_.Find(id); session != nullptr) session->may_write = false;
}

// Forks that share blocks and are freed leave a drain each for every one of them: without this a
// client that names steps and completes none makes the list as long as it likes. Amortised O(1) a
// drain.
void BlockManager::CompactDrains(OperationScope& op, Session& session) {
  std::deque<Drain>& drains = session.drains;
  if (drains.size() < session.compact_drains_at) return;
  std::map<std::pair<uint16_t, TenantId>, std::vector<bool>> later;  // A bit for each id.
  std::deque<Drain> kept;
  for (size_t i = drains.size(); i-- > 0;) {
    const Drain& drain = drains[i];
    std::vector<bool>& seen = later[{drain.window, drain.tenant}];
    if (seen.empty()) seen.resize(windows_[drain.window]->num_ids());
    if (seen[drain.block.value()]) {
      windows_[drain.window]->EndDrain(op, drain.block, drain.tenant);  // The later one holds on.
    } else {
      seen[drain.block.value()] = true;
      kept.push_front(drain);
    }
  }
  drains = std::move(kept);
  session.compact_drains_at = std::max(Session::kFewDrains, 2 * drains.size());
}

// --- Quarantine ---

std::vector<SessionId> BlockManager::QuarantinedSessions(SessionId from, size_t limit) const {
  std::vector<SessionId> sessions;
  for (auto it = quarantines_.lower_bound(from); it != quarantines_.end(); ++it) {
    if (sessions.size() == limit) break;
    sessions.push_back(it->first);
  }
  return sessions;
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
  OperationScope op = BeginOperation(now);
  ResumeBatch(id, steps);
  if (steps.step == 0) return absl::OkStatus();
  session.step = steps.step;
  session.completed_step = steps.completed_step;
  while (!session.drains.empty() && session.drains.front().step <= steps.completed_step) {
    const Drain drain = session.drains.front();
    session.drains.pop_front();
    windows_[drain.window]->EndDrain(op, drain.block, drain.tenant);
  }
  session.drains_charge.ResizeAnyway(session.drains.size() * sizeof(Drain));
  EndOperation(op);
  return absl::OkStatus();
}

void BlockManager::ResumeBatch(SessionId id, StepRange steps) {
  RequireSession(id).batch_step = steps.step;
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
