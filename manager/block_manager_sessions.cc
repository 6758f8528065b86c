// The part of BlockManager that handles sessions and their batches.
#include <utility>

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

bool BlockManager::HasWriter(SessionId id) const {
  const Session* session = parts().sessions.Find(id);
  return session != nullptr && session->may_write;
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

}  // namespace pagoda
