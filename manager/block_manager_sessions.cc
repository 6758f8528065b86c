// The part of BlockManager that handles sessions and their batches.
#include <utility>
#include <vector>

#include "base/check.h"
#include "manager/block_manager_parts.h"

namespace pagoda {

// --- Sessions ---

absl::StatusOr<BlockManager::OpenedSession> BlockManager::OpenSession(std::string client_name,
                                                                      absl::Duration lease,
                                                                      absl::Time now,
                                                                      TenantId tenant,
                                                                      SessionToken token) {
  parts().runner.Begin(now);
  PAGODA_CHECK(tenant.value() < parts().tenants.size(), "a session's tenant exists");
  absl::StatusOr<SessionRef> ref =
      parts().sessions.Open(std::move(client_name), lease, now, tenant, token);
  if (!ref.ok()) return ref.status();
  parts().sessions.Require(ref->id).deferred_charge = {&parts().accounts, tenant, 0, 0};
  return OpenedSession{.ref = *ref, .lease = lease};
}

absl::Status BlockManager::CheckSession(SessionRef ref) const {
  return parts().sessions.Find(ref).status();
}

absl::StatusOr<absl::Duration> BlockManager::KeepAlive(SessionRef ref, absl::Time now) {
  absl::StatusOr<Session*> session = parts().sessions.Find(ref);
  if (!session.ok()) return session.status();
  (*session)->deadline = now + (*session)->lease;
  return (*session)->lease;
}

absl::Status BlockManager::AttachStream(SessionRef ref) {
  absl::StatusOr<Session*> session = parts().sessions.Find(ref);
  if (!session.ok()) return session.status();
  ++(*session)->streams;
  return absl::OkStatus();
}

void BlockManager::DetachStream(SessionId id, absl::Time now) {
  Session* session = parts().sessions.Find(id);
  if (session == nullptr) return;  // Closed while the stream was open.
  PAGODA_CHECK(session->streams > 0, "a stream is detached once");
  --session->streams;
  session->deadline = now + session->lease;
}

absl::Status BlockManager::NoteWriter(SessionRef ref) {
  absl::StatusOr<Session*> session = parts().sessions.Find(ref);
  if (!session.ok()) return session.status();
  (*session)->may_write = true;
  return absl::OkStatus();
}

void BlockManager::NoteWriterGone(SessionId id) {
  if (Session* session = parts().sessions.Find(id); session != nullptr) session->may_write = false;
}

// --- Batches ---

absl::Status BlockManager::BeginBatch(SessionId id, StepRange steps, absl::Time now) {
  Session& session = parts().sessions.Require(id);
  if (absl::Status status = DeferredReleases::CheckSteps(session, steps); !status.ok())
    return status;
  OperationScope op = parts().runner.Begin(now);
  ResumeBatch(id, steps);
  if (steps.step == 0) return absl::OkStatus();
  parts().deferred.Complete(op, session, steps);
  parts().runner.End(op);
  return absl::OkStatus();
}

void BlockManager::ResumeBatch(SessionId id, StepRange steps) {
  parts().sessions.Require(id).batch_step = steps.step;
}

std::vector<ShortenedSequence> BlockManager::Shortened(SessionId id) {
  return parts().sequences.Shortened(id);
}

// --- The end ---

absl::Status BlockManager::CloseSession(SessionRef ref, absl::Time now, EndIn how) {
  return parts().endings.CloseSession(ref, now, how);
}

size_t BlockManager::ExpireSessions(absl::Time now, EndIn how, absl::Duration pause) {
  return parts().endings.ExpireSessions(now, how, pause);
}

absl::Status BlockManager::EndSession(SessionId id, absl::Time now, EndIn how) {
  return parts().endings.EndSession(id, now, how);
}

bool BlockManager::ContinueEndings(absl::Time now, uint32_t max_blocks) {
  return parts().endings.ContinueEndings(now, max_blocks);
}

uint64_t BlockManager::endings_begun() const { return parts().endings.begun(); }

uint64_t BlockManager::endings_ended() const { return parts().endings.ended(); }

bool BlockManager::IsEnding(SessionId id) const { return parts().endings.IsEnding(id); }

bool BlockManager::IsQuarantined(SessionId id) const { return parts().endings.IsQuarantined(id); }

std::vector<SessionId> BlockManager::QuarantinedSessions(SessionId from, size_t limit) const {
  return parts().endings.QuarantinedSessions(from, limit);
}

std::vector<QuarantineInfo> BlockManager::Quarantines() const {
  return parts().endings.Quarantines();
}

absl::StatusOr<uint32_t> BlockManager::ReleaseQuarantine(SessionId id, absl::Time now, EndIn how) {
  return parts().endings.ReleaseQuarantine(id, now, how);
}

void BlockManager::QuarantineFree(absl::Time now) { parts().endings.QuarantineFree(now); }

}  // namespace pagoda
