#include "clients/cpp/map_socket_call.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "wire/errors.h"

namespace pagoda {
namespace {

// The kernel's limit of descriptors in one packet (SCM_MAX_FD).
constexpr size_t kMaxDescriptors = 253;
// No daemon sends more: a pool takes about 200 bytes, and a few bytes for each layer.
constexpr size_t kMaxAnswerBytes = 1 << 18;

absl::Status SocketError(const std::string& path, int error) {
  const std::string what = absl::StrCat("map socket ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(absl::StrCat(
          what, "; a client maps pools on the daemon's machine, where that path is the same file"));
    case EAGAIN:  // SO_SNDTIMEO or SO_RCVTIMEO is over.
      return absl::DeadlineExceededError(absl::StrCat("map socket ", path, ": no answer in time"));
    case ECONNREFUSED:
      return absl::UnavailableError(what);
    default:
      return absl::ErrnoToStatus(error, what);
  }
}

absl::StatusOr<FileDescriptor> ConnectTo(const std::string& path, absl::Duration timeout) {
  sockaddr_un address = {};
  if (path.size() >= sizeof(address.sun_path)) return SocketError(path, ENAMETOOLONG);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SocketError(path, errno);
  // The send timeout also bounds connect(), which blocks while the daemon's backlog is full.
  const timeval limit = absl::ToTimeval(timeout);
  for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    if (setsockopt(fd.get(), SOL_SOCKET, option, &limit, sizeof(limit)) != 0) {
      return SocketError(path, errno);
    }
  }
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SocketError(path, errno);
  }
  return fd;
}

std::vector<FileDescriptor> DescriptorsOf(msghdr& message) {
  std::vector<FileDescriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(fd), sizeof(fd));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

absl::StatusOr<MapSocketAnswer> Receive(int connection, const std::string& path) {
  std::string bytes(kMaxAnswerBytes, '\0');
  iovec data = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control;
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  if (size < 0) return SocketError(path, errno);
  MapSocketAnswer answer;
  answer.descriptors = DescriptorsOf(message);
  if (size == 0) {
    return absl::UnavailableError(absl::StrCat("map socket ", path, ": the daemon hung up"));
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("map socket ", path,
                     ": this process cannot open enough files for all pools; "
                     "raise its limit (ulimit -n)"));
  }
  if ((message.msg_flags & MSG_TRUNC) != 0 ||
      !answer.response.ParseFromArray(bytes.data(), static_cast<int>(size))) {
    return absl::InternalError(absl::StrCat("map socket ", path, ": not a MapPoolsResponse"));
  }
  return answer;
}

}  // namespace

absl::StatusOr<MapSocketAnswer> CallMapSocket(const std::string& path,
                                              const v1::MapPoolsRequest& request,
                                              absl::Duration timeout) {
  const absl::StatusOr<FileDescriptor> connection = ConnectTo(path, timeout);
  if (!connection.ok()) return connection.status();
  const std::string packet = request.SerializeAsString();
  if (send(connection->get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
    return SocketError(path, errno);
  }
  absl::StatusOr<MapSocketAnswer> answer = Receive(connection->get(), path);
  if (answer.ok() && answer->response.has_error()) {
    return StatusFromProto(answer->response.error());
  }
  return answer;
}

}  // namespace pagoda
