// Which processes can write to the pools, and when what they could write is free of them.
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
#include "manager/ids.h"
#include "server/memory/peer_process.h"
#include "server/memory/writer_table.h"

namespace pagoda::server {

// Refusing a session's calls does not stop a process that has mapped the pools. So what a session
// has when it ends without its client's word stays quarantined in the core, until each process that
// mapped the pools for it has ended; this class knows those processes, by pidfds. A process of
// which no pidfd can be had counts as alive. Thread-safe.
//
// Invariants:
//   1. A process is remembered, here and in the table beside the pools, before it gets a
//      descriptor.
//   2. A process is forgotten when it has ended, or when its session is over and has nothing
//      quarantined; never otherwise.
class WriterProcesses {
 public:
  // What is asked of the core. Each may be called under this object's mutex.
  struct Core {
    // OK where the session is open. Errors: UNKNOWN_SESSION, STALE_SESSION.
    std::function<absl::Status(SessionRef)> check;
    // The name of the session's tenant; empty where it has none. Errors: those of check.
    std::function<absl::StatusOr<std::string>(SessionRef)> tenant;
    // Whether the session is open, or still has blocks: while they are being freed, and quarantined
    // ones too.
    std::function<bool(SessionRef)> remembers;
    // From now on what the session leaves behind is quarantined. Errors: those of check.
    std::function<absl::Status(SessionRef)> note_writer;
    // Nobody writes for it any more, so it leaves nothing behind. None where there is no session.
    std::function<void(SessionId)> writers_gone;
    // The sessions that have slots in quarantine, ascending; kEarlierRuns stands for those of
    // earlier daemons. Called by each Sweep: holds nobody up.
    std::function<std::vector<SessionId>()> quarantined;
    std::function<void(SessionId)> release;
  };
  static constexpr SessionId kEarlierRuns{0};

  // At most so many writers of one session, and of all. A writer that lives takes a descriptor of
  // this process.
  static constexpr size_t kMaxWritersOfSession = 64;
  static constexpr size_t kMaxWriters = 8192;

  // `table_name`: see WriterTable::Open, also for the errors. The writers in it are those of
  // earlier daemons, and count until they have ended or ForgetOld says that they do not.
  static absl::StatusOr<std::unique_ptr<WriterProcesses>> Create(const std::string& table_name,
                                                                 Core core);

  // The pools are those of earlier daemons. Returns the writers that lived when this was created.
  std::vector<WriterRow> AdoptOld() ABSL_LOCKS_EXCLUDED(mutex_);
  // The pools are new, and nobody has them. Where no table was found one begins here.
  void ForgetOld() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the table was there: false beside pools that were says that anybody may write to them.
  bool found_table() const { return found_table_; }
  // Whether anything was there under the table's name, a table or not.
  bool table_was_there() const { return table_was_there_; }
  // The table stays when this object ends, because the pools' memory does.
  void LeaveTable() ABSL_LOCKS_EXCLUDED(mutex_);

  // The process may write for the session from now on. REQUIRES: a table was found, or ForgetOld
  // was called.
  // Errors: UNKNOWN_SESSION, STALE_SESSION; RESOURCE_EXHAUSTED without a reason where there are as
  // many writers as may be.
  absl::Status Note(SessionRef session, PeerProcess process) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether no process lives that could write for the session.
  bool Dead(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  // OK where what the session left in quarantine may be released: nobody writes there any more.
  // Errors: UNKNOWN_QUARANTINE (nothing of it is quarantined, perhaps not yet), WRITER_ALIVE.
  // Cost: O(quarantines).
  absl::Status CheckReleasable(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The processes that could, as far as they live and have an id here; ascending. Of kEarlierRuns,
  // those of AdoptOld.
  std::vector<pid_t> Pids(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool OldWritersAlive() const { return !Dead(kEarlierRuns); }

  // The client of a session of an earlier daemon says that nothing of it writes any more. `tenant`:
  // for whose sessions it may speak; none: an operator, who may for all.
  // False where no such session of such a tenant is remembered.
  bool AcknowledgeOld(SessionRef session, const std::optional<std::string>& tenant)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets dead processes and sessions that are over, tells the core of sessions without a writer,
  // and releases what those left behind. Returns the sessions released. To be called now and then,
  // and before sessions expire. Cost: O(writers + quarantines), whatever these hold.
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
  // Forgets those writers of a session for which `gone` holds.
  void Forget(SessionId session, const std::function<bool(const Writer&)>& gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetTheDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Remember(SessionRef session, const std::string& tenant, PeerProcess process)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Writers& Of(SessionId session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Core core_;
  const bool found_table_;
  const bool table_was_there_;
  // Taken before the core's lock.
  mutable absl::Mutex mutex_;
  std::unique_ptr<WriterTable> table_ ABSL_GUARDED_BY(mutex_);
  // By session; those of earlier daemons under kEarlierRuns. No list is empty.
  absl::btree_map<SessionId, Writers> writers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_WRITER_PROCESSES_H_
