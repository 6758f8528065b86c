#include "server/memory/writer_processes.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

bool SameSession(SessionRef a, SessionRef b) { return a.id == b.id && a.token == b.token; }

// Whether two live processes are known to be the same. Pidfds show this even for a process that has
// no id here because it is in another PID namespace.
bool SameProcess(const PeerProcess& a, const PeerProcess& b) {
  const uint64_t one = a.identity().pidfd_inode, other = b.identity().pidfd_inode;
  if (one != 0 && other != 0) return one == other;
  return a.pid() != 0 && a.pid() == b.pid();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WriterProcesses>> WriterProcesses::Create(
    const std::string& table_name, Core core) {
  absl::StatusOr<std::unique_ptr<WriterTable>> table = WriterTable::Open(table_name, kMaxWriters);
  if (!table.ok()) return table.status();
  return absl::WrapUnique(new WriterProcesses(*std::move(table), std::move(core)));
}

WriterProcesses::WriterProcesses(std::unique_ptr<WriterTable> table, Core core)
    : core_(std::move(core)),
      found_table_(table->found()),
      table_was_there_(table->was_there()),
      table_(std::move(table)) {
  absl::MutexLock lock(&mutex_);
  for (const size_t row : table_->Rows()) {
    const WriterRow writer = table_->Get(row);
    absl::StatusOr<PeerProcess> process = PeerProcess::Find(writer.process);
    if (process.ok()) {
      writers_[kEarlierRuns].push_back({*std::move(process), writer.session, writer.tenant, row});
    } else {
      table_->Remove(row);
    }
  }
}

void WriterProcesses::ForgetOld() {
  absl::MutexLock lock(&mutex_);
  Forget(kEarlierRuns, [](const Writer&) { return true; });
  table_->Begin();
}

void WriterProcesses::LeaveTable() {
  absl::MutexLock lock(&mutex_);
  table_->SetLeave(WriterTable::Leave::kForTheNextDaemon);
}

absl::Status WriterProcesses::Note(SessionRef session, PeerProcess process) {
  absl::MutexLock lock(&mutex_);
  const absl::StatusOr<std::string> tenant = core_.tenant(session);
  if (!tenant.ok()) return tenant.status();
  absl::Status status = Remember(session, *tenant, std::move(process));
  if (!status.ok()) return status;
  // If the session has ended meanwhile, the next Sweep forgets this writer.
  return core_.note_writer(session);
}

absl::Status WriterProcesses::Remember(SessionRef session, const std::string& tenant,
                                       PeerProcess process) {
  Forget(session.id, [](const Writer& writer) { return writer.process.ended(); });
  const Writers& known = Of(session.id);
  if (std::any_of(known.begin(), known.end(), [&](const Writer& writer) {
        return SameProcess(writer.process, process) && SameSession(writer.session, session);
      })) {
    return absl::OkStatus();
  }
  if (known.size() >= kMaxWritersOfSession) {
    return absl::ResourceExhaustedError(absl::StrCat("session ", session.id.value(), " has ",
                                                     Counted(known.size(), "writer"), " already"));
  }
  const absl::StatusOr<size_t> row =
      table_->Add({.process = process.identity(), .session = session, .tenant = tenant});
  if (!row.ok()) return row.status();
  writers_[session.id].push_back({std::move(process), session, tenant, *row});
  return absl::OkStatus();
}

bool WriterProcesses::Dead(SessionId session) const {
  absl::MutexLock lock(&mutex_);
  const Writers& writers = Of(session);
  return std::all_of(writers.begin(), writers.end(),
                     [](const Writer& writer) { return writer.process.ended(); });
}

// Checks the quarantine first. A quarantined session is over and gets no new writer, so the result
// of the second check stays true. An open session could get a writer and end after that check.
absl::Status WriterProcesses::CheckReleasable(SessionId session) const {
  const std::vector<SessionId> quarantined = core_.quarantined();
  if (!std::binary_search(quarantined.begin(), quarantined.end(), session)) {
    return MakeError(Reason::kUnknownQuarantine,
                     absl::StrCat("nothing of session ", session.value(), " is quarantined"));
  }
  if (Dead(session)) return absl::OkStatus();
  return MakeError(Reason::kWriterAlive, absl::StrCat("a process of session ", session.value(),
                                                      " is alive and can still write"));
}

std::vector<pid_t> WriterProcesses::Pids(SessionId session) const {
  absl::MutexLock lock(&mutex_);
  std::vector<pid_t> pids;
  for (const Writer& writer : Of(session)) {
    if (writer.process.pid() != 0 && !writer.process.ended()) pids.push_back(writer.process.pid());
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

bool WriterProcesses::AcknowledgeOld(SessionRef session, const std::optional<std::string>& tenant) {
  absl::MutexLock lock(&mutex_);
  const size_t before = Of(kEarlierRuns).size();
  Forget(kEarlierRuns, [&](const Writer& writer) {
    return SameSession(writer.session, session) && (!tenant || writer.tenant == *tenant);
  });
  return Of(kEarlierRuns).size() < before;
}

size_t WriterProcesses::Sweep() {
  std::vector<SessionId> dead;
  {
    absl::MutexLock lock(&mutex_);
    ForgetTheDead();
    std::vector<SessionId> over;
    for (const auto& [id, writers] : writers_) {
      if (id != kEarlierRuns && !core_.remembers(writers.front().session)) over.push_back(id);
    }
    for (const SessionId id : over) Forget(id, [](const Writer&) { return true; });
    for (const SessionId id : core_.quarantined()) {
      if (!writers_.contains(id)) dead.push_back(id);
    }
  }
  // A release can take long. A session that is over gets no writer meanwhile.
  for (const SessionId id : dead) core_.release(id);
  return dead.size();
}

void WriterProcesses::ForgetTheDead() {
  std::vector<SessionId> ids;
  for (const auto& [id, writers] : writers_) ids.push_back(id);
  for (const SessionId id : ids) {
    Forget(id, [](const Writer& writer) { return writer.process.ended(); });
    if (id != kEarlierRuns && !writers_.contains(id)) core_.writers_gone(id);
  }
}

const WriterProcesses::Writers& WriterProcesses::Of(SessionId session) const {
  static const Writers* const kNone = new Writers;
  const auto found = writers_.find(session);
  return found == writers_.end() ? *kNone : found->second;
}

void WriterProcesses::Forget(SessionId session, const std::function<bool(const Writer&)>& gone) {
  const auto found = writers_.find(session);
  if (found == writers_.end()) return;
  Writers& writers = found->second;
  std::erase_if(writers, [&](const Writer& writer) {
    if (!gone(writer)) return false;
    table_->Remove(writer.row);
    return true;
  });
  if (writers.empty()) writers_.erase(found);
}

}  // namespace pagoda::server
