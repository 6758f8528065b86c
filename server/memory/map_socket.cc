#include "server/memory/map_socket.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "pagoda/v1/mapping.pb.h"
#include "server/config/listen_address.h"
#include "wire/errors.h"
#include "wire/ring/ring_layout.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

// How long no connection is accepted after this process could not open another file.
constexpr absl::Duration kPause = absl::Milliseconds(100);

absl::Status CannotListen(const std::string& path) {
  return MakeError(Reason::kInvalidArgument,
                   absl::StrCat("cannot listen on ", path, ": ", std::strerror(errno)));
}

absl::Status Invalid(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

// The process that sent a packet, as the kernel reports it; 0 if it has no id in this PID
// namespace.
pid_t SenderOf(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender;
    std::memcpy(&sender, CMSG_DATA(part), sizeof(sender));
    return sender.pid;
  }
  return 0;
}

// Whether the peer has left an answer unread.
bool OwesARead(int connection) {
  int unread = 0;
  return ioctl(connection, SIOCOUTQ, &unread) != 0 || unread > 0;
}

}  // namespace

struct MapSocket::Packet {
  std::string bytes;
  bool whole = false;  // At most kMaxRequestBytes.
  pid_t sender = 0;

  // nullopt: the peer has hung up.
  static std::optional<Packet> Take(int connection) {
    Packet packet;
    packet.bytes.resize(kMaxRequestBytes);
    iovec data = {.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
    // Holds only the credentials, so descriptors that a peer sends are not received.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control;
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size <= 0) return std::nullopt;
    packet.bytes.resize(static_cast<size_t>(size));
    packet.whole = (message.msg_flags & MSG_TRUNC) == 0;
    packet.sender = SenderOf(message);
    return packet;
  }
};

absl::StatusOr<std::unique_ptr<MapSocket>> MapSocket::Listen(std::string path, Gate gate) {
  absl::StatusOr<EventPoll> poll = EventPoll::Create();
  if (!poll.ok()) return poll.status();
  auto socket = absl::WrapUnique(new MapSocket(std::move(path), std::move(gate), *std::move(poll)));
  if (absl::Status status = socket->Bind(); !status.ok()) return status;
  absl::Status started = socket->thread_.Start("pagoda-map", [s = socket.get()] { s->Run(); });
  if (!started.ok()) return started;
  return socket;
}

absl::Status MapSocket::Bind() {
  if (absl::Status status = ClearStaleSocket(path_); !status.ok()) return status;
  FileDescriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return CannotListen(path_);
  // Every connection inherits it: the kernel then adds the sender to each packet.
  const int on = 1;
  if (setsockopt(listener.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return CannotListen(path_);
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return CannotListen(path_);
  }
  listener_ = std::move(listener);  // From here on the destructor removes the file.
  // Set the mode before the socket listens: until then no process can connect.
  if (chmod(path_.c_str(), kSocketMode) != 0 || listen(listener_.get(), SOMAXCONN) != 0 ||
      !poll_.Add(listener_.get(), EPOLLIN, &listener_)) {
    return CannotListen(path_);
  }
  return absl::OkStatus();
}

MapSocket::~MapSocket() {
  poll_.Wake();
  thread_.Join();
  if (listener_.valid()) unlink(path_.c_str());
}

void MapSocket::Run() {
  bool paused = false;
  while (true) {
    const EventPoll::Ready ready = poll_.Wait(paused ? kPause : absl::InfiniteDuration());
    if (ready.is_woken) return;
    if (std::exchange(paused, false)) poll_.Change(listener_.get(), EPOLLIN, &listener_);
    bool is_knocked = false;
    for (void* const source : ready.sources) {
      if (source == &listener_) {
        is_knocked = true;
        continue;
      }
      Connection& connection = *static_cast<Connection*>(source);
      connection.last_use = ++uses_;
      if (Serve(connection) == Next::kHangUp) HangUp(connection.fd.get());
    }
    paused = is_knocked && !Accept();
    if (paused) poll_.Change(listener_.get(), 0, &listener_);
  }
}

bool MapSocket::Accept() {
  FileDescriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    const bool out_of_files = errno == EMFILE || errno == ENFILE;
    if (!out_of_files) return true;  // That peer has gone.
    if (connections_.empty()) return false;
    HangUpOnTheIdlest();  // The next round accepts the waiting peer in its place.
    return true;
  }
  if (connections_.size() == kMaxConnections) HangUpOnTheIdlest();
  const int number = fd.get();
  Connection& connection = connections_[number] = {std::move(fd), ++uses_};
  if (!poll_.Add(number, EPOLLIN, &connection)) connections_.erase(number);
  return true;
}

// The descriptor can live on in a child process that is being started, so its end does not suffice
// to stop its events, which name the connection.
void MapSocket::HangUp(int fd) {
  poll_.Remove(fd);
  connections_.erase(fd);
}

void MapSocket::HangUpOnTheIdlest() {
  HangUp(
      std::min_element(connections_.begin(), connections_.end(), [](const auto& a, const auto& b) {
        return a.second.last_use < b.second.last_use;
      })->first);
}

MapSocket::Next MapSocket::Serve(const Connection& connection) {
  const int fd = connection.fd.get();
  const std::optional<Packet> packet = Packet::Take(fd);
  // Descriptors that are sent but not received count against this process's user. Each peer can
  // therefore have at most one unread answer.
  if (!packet.has_value() || OwesARead(fd)) return Next::kHangUp;
  return Answer(fd, Decide(*packet, fd));
}

absl::StatusOr<MapSocket::Grant> MapSocket::Decide(const Packet& packet, int connection) {
  v1::MapPoolsRequest request;
  if (!packet.whole || !request.ParseFromString(packet.bytes)) {
    return Invalid("the packet is not a MapPoolsRequest");
  }
  const SessionRef session = SessionFromProto(request.session());
  if (request.has_rings()) {
    if (request.access() != v1::MAP_ACCESS_UNSPECIFIED) {
      return Invalid("a request for rings names no access");
    }
    absl::StatusOr<Rings> rings = gate_.open_rings(session, request.rings().bytes());
    if (!rings.ok()) return rings.status();
    Grant grant;
    grant.rings = *std::move(rings);
    return grant;
  }
  if (request.access() == v1::MAP_ACCESS_READ) {
    absl::StatusOr<ExportPtr> pool_export = gate_.admit_reader(session);
    if (!pool_export.ok()) return pool_export.status();
    return Grant{*std::move(pool_export), MemoryAccess::kRead, std::nullopt};
  }
  if (request.access() != v1::MAP_ACCESS_READ_WRITE) {
    return Invalid("access is neither MAP_ACCESS_READ nor MAP_ACCESS_READ_WRITE");
  }
  return DecideWriter(session, packet, connection);
}

absl::StatusOr<MapSocket::Grant> MapSocket::DecideWriter(SessionRef session, const Packet& packet,
                                                         int connection) {
  absl::StatusOr<PeerProcess> peer = PeerProcess::Of(connection);
  if (!peer.ok()) return peer.status();
  // The recorded process must be the one that gets the descriptors.
  if (peer->pid() != packet.sender) {
    return Invalid(absl::StrCat("process ", packet.sender,
                                " sent a request on the connection of process ", peer->pid(),
                                "; each process must make its own connection"));
  }
  absl::StatusOr<ExportPtr> pool_export = gate_.admit_writer(session, *std::move(peer));
  if (!pool_export.ok()) return pool_export.status();
  return Grant{*std::move(pool_export), MemoryAccess::kReadWrite, std::nullopt};
}

std::string MapSocket::Grant::answer() const {
  if (pool_export != nullptr) return pool_export->answer();
  v1::MapPoolsResponse response;
  response.mutable_rings()->set_version(ring::kVersion);
  response.mutable_rings()->set_bytes(rings->bytes);
  return response.SerializeAsString();
}

absl::Span<const FileDescriptor> MapSocket::Grant::descriptors() const {
  if (pool_export != nullptr) return pool_export->descriptors(access);
  return rings->descriptors;
}

MapSocket::Next MapSocket::Answer(int connection, const absl::StatusOr<Grant>& decision) {
  std::string answer;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * PoolExport::kMaxSegments)> control =
      {};
  msghdr message = {};
  if (decision.ok()) {
    answer = decision->answer();
    const absl::Span<const FileDescriptor> descriptors = decision->descriptors();
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    unsigned char* out = CMSG_DATA(part);
    for (const FileDescriptor& descriptor : descriptors) {
      const int fd = descriptor.get();
      std::memcpy(out, &fd, sizeof(fd));
      out += sizeof(fd);
    }
  } else {
    v1::MapPoolsResponse response;
    *response.mutable_error() = ToProtoStatus(decision.status());
    answer = response.SerializeAsString();
  }
  iovec data = {.iov_base = answer.data(), .iov_len = answer.size()};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  const ssize_t sent = sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 ? Next::kHangUp : Next::kGoOn;
}

}  // namespace pagoda::server
