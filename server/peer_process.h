// The process at the other end of a Unix socket.
#ifndef PAGODA_SERVER_PEER_PROCESS_H_
#define PAGODA_SERVER_PEER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "pools/file_descriptor.h"

namespace pagoda::server {

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
  // The process `pid`, if it still is the one that started at `start_time`. With 0 and 0, a process
  // of which nothing is known, and which has therefore not ended. Errors: NotFound where it is not.
  static absl::StatusOr<PeerProcess> Find(pid_t pid, uint64_t start_time);

  // 0 where it lives in a PID namespace that this process does not see.
  pid_t pid() const { return pid_; }
  // In clock ticks since the machine's start: with the id, a name that no other process has until
  // the next one. 0 where it cannot be known.
  uint64_t start_time() const { return start_time_; }
  // Whether it is certain that it has ended; never so for a process of which there is no pidfd.
  bool ended() const;

 private:
  PeerProcess(FileDescriptor pidfd, pid_t pid);

  FileDescriptor pidfd_;  // None: not known whether it lives.
  pid_t pid_ = 0;
  uint64_t start_time_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEER_PROCESS_H_
