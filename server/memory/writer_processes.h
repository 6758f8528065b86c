// Tracks the processes that can write to the pools, and releases quarantined blocks when their
// writers have ended.
#ifndef PAGODA_SERVER_MEMORY_WRITER_PROCESSES_H_
#define PAGODA_SERVER_MEMORY_WRITER_PROCESSES_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "manager/words/ids.h"
#include "server/memory/peer_process.h"
#include "server/memory/writer_table.h"

namespace pagoda::server {

// Refusing a session's calls does not stop a process that has mapped the pools. Blocks of a session
// that ends without its client's word therefore stay quarantined in the core, until each process
// that mapped the pools for it has ended. This class tracks those processes by pidfds. A process
// without a pidfd counts as alive. Thread-safe.
//
// Invariants:
//   1. A process is recorded, here and in the table next to the pools, before it gets a descriptor.
//   2. A process is forgotten only when it has ended, or when its session is over and has nothing
//      quarantined.
class WriterProcesses {
 public:
  // The calls to the core. Each can run under this object's mutex.
  struct Core {
    // OK if the session is open. Errors: UNKNOWN_SESSION, STALE_SESSION.
    std::function<absl::Status(SessionRef)> check;
    // The name of the session's tenant; empty if it has none. Errors: those of check.
    std::function<absl::StatusOr<std::string>(SessionRef)> tenant;
    // Whether the session is open or still has blocks, including blocks that are being freed and
    // quarantined blocks.
    std::function<bool(SessionRef)> remembers;
    // From now on the core quarantines the blocks that the session leaves behind. Errors: those of
    // check.
    std::function<absl::Status(SessionRef)> note_writer;
    // The session has no writer any more, so it leaves nothing behind. Does nothing for an unknown
    // session.
    std::function<void(SessionId)> writers_gone;
    // The sessions that have slots in quarantine, ascending. kEarlierRuns stands for the sessions
    // of earlier daemons. Each Sweep calls it, so it must be fast.
    std::function<std::vector<SessionId>()> quarantined;
    std::function<void(SessionId)> release;
  };
  static constexpr SessionId kEarlierRuns{0};

  // The limits on the writers of one session and on all writers. Each live writer takes a
  // descriptor of this process.
  static constexpr size_t kMaxWritersOfSession = 64;
  static constexpr size_t kMaxWriters = 8192;

  // For `table_name` and the errors see WriterTable::Open. The writers found in the table belong to
  // earlier daemons. They count until they have ended or ForgetOld is called.
  static absl::StatusOr<std::unique_ptr<WriterProcesses>> Create(const std::string& table_name,
                                                                 Core core);

  // Call this if the pools are new and no process has mapped them. Starts a table if none was
  // found.
  void ForgetOld() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the table was found. If the pools were found without it, any process may still write to
  // them.
  bool found_table() const { return found_table_; }
  // Whether anything existed under the table's name, even if it was not a table.
  bool table_was_there() const { return table_was_there_; }
  // Keeps the table when this object ends, because the pools' memory stays.
  void LeaveTable() ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on the process can write for the session. REQUIRES: a table was found, or ForgetOld
  // was called.
  // Errors: UNKNOWN_SESSION, STALE_SESSION; RESOURCE_EXHAUSTED without a reason if a limit on
  // writers is reached.
  absl::Status Note(SessionRef session, PeerProcess process) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether no live process can write for the session.
  bool Dead(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  // OK if the session's quarantined blocks can be released: no process writes to them any more.
  // Errors: UNKNOWN_QUARANTINE (no block of it is quarantined, or not yet), WRITER_ALIVE. Cost:
  // O(quarantines).
  absl::Status CheckReleasable(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The live processes that can write for the session and have an id in this PID namespace,
  // ascending. For kEarlierRuns, the processes of earlier daemons' writers.
  std::vector<pid_t> Pids(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);

  // The client of an earlier daemon's session confirms that no process writes for it any more.
  // `tenant` limits the call to that tenant's sessions; nullopt is an operator, who can confirm for
  // all. False if no such session of that tenant is recorded.
  bool AcknowledgeOld(SessionRef session, const std::optional<std::string>& tenant)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets dead processes and ended sessions, reports to the core which sessions have no writer,
  // and releases what these left behind. Returns the number of sessions released. Call it
  // periodically, and before sessions expire. Cost: O(writers + quarantines), regardless of their
  // blocks.
  size_t Sweep() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Writer {
    PeerProcess process;
    SessionRef session;
    std::string tenant;  // Its name; empty: none.
    size_t row;          // In the table.
  };
  using Writers = std::vector<Writer>;

  WriterProcesses(std::unique_ptr<WriterTable> table, Core core);
  // Forgets the session's writers for which `gone` returns true.
  void Forget(SessionId session, const std::function<bool(const Writer&)>& gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetTheDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Remember(SessionRef session, const std::string& tenant, PeerProcess process)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Writers& Of(SessionId session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Core core_;
  const bool found_table_;
  const bool table_was_there_;
  // Locked before the core's lock.
  mutable absl::Mutex mutex_;
  std::unique_ptr<WriterTable> table_ ABSL_GUARDED_BY(mutex_);
  // By session; writers of earlier daemons are under kEarlierRuns. No list is empty.
  absl::btree_map<SessionId, Writers> writers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_WRITER_PROCESSES_H_
