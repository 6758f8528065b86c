#include "server/memory/peer_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pagoda::server {
namespace {

// Linux 6.5 has this option; the C library's headers can be older.
#ifdef SO_PEERPIDFD
constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kPeerPidfd = 77;
#endif

// The C library declares its own function for C only.
FileDescriptor OpenPidfd(pid_t pid) {
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

// Whether the error says only that this process has no descriptor left.
bool IsOutOfDescriptors(int error) { return error == EMFILE || error == ENFILE; }

absl::Status OutOfDescriptors() {
  return absl::ResourceExhaustedError("this process has reached its limit of open files");
}

absl::Status HungUp() { return absl::UnavailableError("the process has hung up"); }

bool HasHungUp(int connection) {
  pollfd waiting = {.fd = connection, .events = POLLRDHUP, .revents = 0};
  return poll(&waiting, 1, 0) != 0;
}

// The peer's id in this process's PID namespace; 0 if it has none there.
pid_t PeerPid(int connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return 0;
  return peer.pid;
}

// The 22nd field of /proc/PID/stat; 0 if it cannot be read. The second field is the program's name
// in parentheses, which can contain any character.
uint64_t StartTime(pid_t pid) {
  if (pid <= 0) return 0;
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line, '\0');
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kField = 22 - 3;  // The first field behind the name is the third.
  uint64_t ticks = 0;
  return fields.size() > kField && absl::SimpleAtoi(fields[kField], &ticks) ? ticks : 0;
}

// 0 if pidfds have no inodes of their own: before Linux 6.9 all pidfds share one.
uint64_t PidfdInode(const FileDescriptor& pidfd) {
  constexpr long kPidFileSystem = 0x50494446;  // PID_FS_MAGIC, in headers of Linux 6.9.
  struct statfs system;
  struct stat info;
  if (!pidfd.valid() || fstatfs(pidfd.get(), &system) != 0 || system.f_type != kPidFileSystem) {
    return 0;
  }
  return fstat(pidfd.get(), &info) == 0 ? info.st_ino : 0;
}

bool KnownToDiffer(uint64_t a, uint64_t b) { return a != 0 && b != 0 && a != b; }

}  // namespace

PeerProcess::PeerProcess(FileDescriptor pidfd, pid_t pid)
    : pidfd_(std::move(pidfd)),
      identity_{.pid = pid, .start_time = StartTime(pid), .pidfd_inode = PidfdInode(pidfd_)} {}

absl::StatusOr<PeerProcess> PeerProcess::Of(int connection) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (getsockopt(connection, SOL_SOCKET, kPeerPidfd, &fd, &size) != 0) {
    if (IsOutOfDescriptors(errno)) return OutOfDescriptors();
    // ENODATA, ESRCH: the peer is dead. Any other error: the kernel does not know the option.
    return errno == ENODATA || errno == ESRCH ? HungUp() : ByCredentials(connection);
  }
  PeerProcess peer(FileDescriptor(fd), PeerPid(connection));
  // While the process is alive its id is not reused, so the data read by id is about this process.
  if (peer.ended() || HasHungUp(connection)) return HungUp();
  return peer;
}

absl::StatusOr<PeerProcess> PeerProcess::ByCredentials(int connection) {
  const pid_t pid = PeerPid(connection);
  FileDescriptor pidfd;
  if (pid > 0) {
    pidfd = OpenPidfd(pid);
    if (!pidfd.valid() && errno == ESRCH) return HungUp();
    if (!pidfd.valid() && IsOutOfDescriptors(errno)) return OutOfDescriptors();
  }
  PeerProcess peer(std::move(pidfd), pid);
  // The id may have passed to another process before the pidfd was opened. But then the process
  // that connected had ended, and its end of the connection was closed.
  if (peer.ended() || HasHungUp(connection)) return HungUp();
  return peer;
}

absl::StatusOr<PeerProcess> PeerProcess::Find(const ProcessIdentity& identity) {
  const pid_t pid = identity.pid;
  const auto over = [&] {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  };
  if (pid == 0) return PeerProcess(FileDescriptor(), 0);
  FileDescriptor pidfd = OpenPidfd(pid);
  if (!pidfd.valid() && (errno == ESRCH || errno == EINVAL)) return over();
  // If the system refuses pidfds.
  if (!pidfd.valid() && kill(pid, 0) != 0 && errno == ESRCH) return over();
  PeerProcess process(std::move(pidfd), pid);
  // The id has passed to another process.
  if (KnownToDiffer(process.identity_.pidfd_inode, identity.pidfd_inode) ||
      KnownToDiffer(process.identity_.start_time, identity.start_time)) {
    return over();
  }
  if (process.ended()) return over();
  return process;
}

bool PeerProcess::ended() const {
  if (!pidfd_.valid()) return false;
  pollfd waiting = {.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) == 1;
}

}  // namespace pagoda::server
