// The process at the other end of a Unix socket.
#ifndef PAGODA_SERVER_MEMORY_PEER_PROCESS_H_
#define PAGODA_SERVER_MEMORY_PEER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace pagoda::server {

// Identifies a process of this boot across runs of the daemon. 0 means unknown.
struct ProcessIdentity {
  pid_t pid = 0;  // 0 also if its PID namespace is hidden from the daemon.
  // In clock ticks since the machine's start. /proc can hide it for other users' processes
  // (hidepid, systemd's ProtectProc=).
  uint64_t start_time = 0;
  // The inode number of its pidfds. Unique since Linux 6.9.
  uint64_t pidfd_inode = 0;

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// A handle to a process. Its pidfd shows for certain whether that process is alive: a process id
// can be reused, a pidfd cannot.
class PeerProcess {
 public:
  // The process that connected to `connection`, while it is connected. Errors: UNAVAILABLE if it
  // has hung up or died; RESOURCE_EXHAUSTED if this process cannot open more files.
  static absl::StatusOr<PeerProcess> Of(int connection);
  // Like Of, for kernels before 6.5, which give no pidfd of a peer.
  static absl::StatusOr<PeerProcess> ByCredentials(int connection);
  // The process with that identity. If too little is known to rule out that another process reused
  // the id, returns the process that has the id now: a process counts as ended only if that is
  // certain. Errors: NotFound if the process has ended.
  static absl::StatusOr<PeerProcess> Find(const ProcessIdentity& identity);

  const ProcessIdentity& identity() const { return identity_; }
  pid_t pid() const { return identity_.pid; }
  // Whether the process has certainly ended. Always false for a process without a pidfd.
  bool ended() const;

 private:
  PeerProcess(FileDescriptor pidfd, pid_t pid);

  FileDescriptor pidfd_;  // Invalid: unknown whether the process is alive.
  ProcessIdentity identity_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_MEMORY_PEER_PROCESS_H_
