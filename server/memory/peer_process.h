// The process at the other end of a Unix socket.
#ifndef PAGODA_SERVER_MEMORY_PEER_PROCESS_H_
#define PAGODA_SERVER_MEMORY_PEER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "pools/file_descriptor.h"

namespace pagoda::server {

// Names a process of this boot to another run of the daemon. What is 0 is not known.
struct ProcessIdentity {
  pid_t pid = 0;  // 0 also where it lives in a PID namespace that the daemon does not see.
  // In clock ticks since the machine's start. /proc hides it of other users' processes where it is
  // mounted so (hidepid, systemd's ProtectProc=).
  uint64_t start_time = 0;
  // The inode number of its pidfds, which no other process has: since Linux 6.9.
  uint64_t pidfd_inode = 0;

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// A process that was met. While it is held, it is known for certain whether that process lives: its
// id may pass to another one, its pidfd does not.
class PeerProcess {
 public:
  // The process that connected to `connection`, while it is connected.
  // Errors: UNAVAILABLE where it has hung up, or died; RESOURCE_EXHAUSTED where this process may
  // not open more files.
  static absl::StatusOr<PeerProcess> Of(int connection);
  // As Of, on kernels before 6.5, which do not name a peer by a pidfd.
  static absl::StatusOr<PeerProcess> ByCredentials(int connection);
  // The process of that name. Where too little is known to tell it from another one with its id,
  // that one: a process is over only where that is certain. Errors: NotFound where the process is
  // over.
  static absl::StatusOr<PeerProcess> Find(const ProcessIdentity& identity);

  const ProcessIdentity& identity() const { return identity_; }
  pid_t pid() const { return identity_.pid; }
  // Whether it is certain that it has ended; never so for a process of which there is no pidfd.
  bool ended() const;

 private:
  PeerProcess(FileDescriptor pidfd, pid_t pid);

  FileDescriptor pidfd_;  // None: not known whether it lives.
  ProcessIdentity identity_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_PEER_PROCESS_H_
