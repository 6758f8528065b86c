#include "server/listener/accept_guard.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "base/file_descriptor.h"
#include "server/config/listen_address.h"
#include "server/listener/header_guard.h"

namespace pagoda::server {
namespace {

// A listener of this process. accept4 is the daemon's function here too.
class AcceptGuardTest : public ::testing::Test {
 protected:
  AcceptGuardTest() {
    absl::StatusOr<ListeningSocket> listening = ListenOn({"127.0.0.1", 0}, 1024);
    EXPECT_TRUE(listening.ok()) << listening.status();
    if (!listening.ok()) return;
    listener_ = std::move(listening->fd);
    address_ = listening->address;
  }

  // A connection from this address of loopback.
  FileDescriptor Connect(uint32_t host = INADDR_LOOPBACK) const {
    FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(host);
    EXPECT_EQ(bind(client.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    sockaddr_storage target;
    const socklen_t size = ToSystem(address_, &target);
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&target), size), 0);
    return client;
  }

  FileDescriptor Accept() const {
    return FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }

  // Whether the other end has closed the connection. Waits for it.
  static bool IsClosed(const FileDescriptor& client) {
    pollfd waiting = {.fd = client.get(), .events = POLLIN, .revents = 0};
    char byte = 0;
    return poll(&waiting, 1, 10'000) == 1 && recv(client.get(), &byte, 1, 0) <= 0;
  }

  FileDescriptor listener_;
  TcpAddress address_;
};

// Lowers the limit of open files for a scope.
class FewFiles {
 public:
  explicit FewFiles(rlim_t files) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {.rlim_cur = files, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST_F(AcceptGuardTest, IsInPlace) { EXPECT_EQ(CheckHeaderGuard(), absl::OkStatus()); }

TEST_F(AcceptGuardTest, OneAddressGetsAQuarterOfTheFilesAndAnotherAddressIsServed) {
  const uint64_t refused_before = CountRefusedConnections().per_address;
  constexpr int kFiles = 256;
  const FewFiles few(kFiles);
  std::vector<FileDescriptor> clients;
  std::vector<FileDescriptor> accepted;
  for (int i = 0; i < kFiles / 4; ++i) {
    clients.push_back(Connect());
    accepted.push_back(Accept());
    ASSERT_TRUE(accepted.back().valid()) << i;
  }
  const FileDescriptor one_more = Connect();
  EXPECT_FALSE(Accept().valid());
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(IsClosed(one_more));
  EXPECT_EQ(CountRefusedConnections().per_address, refused_before + 1);
  const FileDescriptor stranger = Connect(INADDR_LOOPBACK + 1);
  EXPECT_TRUE(Accept().valid());
  accepted.pop_back();  // Its end makes room again.
  const FileDescriptor next = Connect();
  EXPECT_TRUE(Accept().valid());
}

TEST_F(AcceptGuardTest, AQuarterOfTheFilesIsKeptFree) {
  const uint64_t refused_before = CountRefusedConnections().open_files;
  const FewFiles few(128);
  std::vector<FileDescriptor> files;
  while (files.empty() || files.back().get() < 95) files.emplace_back(dup(listener_.get()));
  const FileDescriptor client = Connect();
  EXPECT_FALSE(Accept().valid());
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(IsClosed(client));
  EXPECT_EQ(CountRefusedConnections().open_files, refused_before + 1);
  files.resize(files.size() - 4);
  const FileDescriptor later = Connect();
  EXPECT_TRUE(Accept().valid());
}

TEST_F(AcceptGuardTest, WithoutAFreeDescriptorTheWaitingConnectionIsClosed) {
  const uint64_t refused_before = CountRefusedConnections().open_files;
  const FileDescriptor client = Connect();
  int calls = 0;
  const int fd =
      AcceptByRule(listener_.get(), nullptr, nullptr, [&](sockaddr* peer, socklen_t* size) {
        errno = EMFILE;
        if (++calls == 1) return -1;
        // The spare descriptor was given up. accept itself would follow the rule again.
        return static_cast<int>(syscall(SYS_accept, listener_.get(), peer, size));
      });
  EXPECT_EQ(fd, -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(CountRefusedConnections().open_files, refused_before + 1);
  EXPECT_TRUE(IsClosed(client));
}

TEST_F(AcceptGuardTest, AListenerSeesNoErrorOfAConnection) {
  for (const int error : {ECONNABORTED, ENETDOWN, EPROTO, EPERM, EHOSTUNREACH, EMFILE, ENOMEM}) {
    const int fd = AcceptByRule(listener_.get(), nullptr, nullptr, [&](sockaddr*, socklen_t*) {
      errno = error;
      return -1;
    });
    EXPECT_EQ(fd, -1);
    EXPECT_EQ(errno, EAGAIN) << error;
  }
  for (const int error : {EAGAIN, EINTR, EINVAL, EBADF}) {
    const int fd = AcceptByRule(listener_.get(), nullptr, nullptr, [&](sockaddr*, socklen_t*) {
      errno = error;
      return -1;
    });
    EXPECT_EQ(fd, -1);
    EXPECT_EQ(errno, error);
  }
}

TEST_F(AcceptGuardTest, TheAddressOfTheClientIsReturned) {
  const FileDescriptor client = Connect(INADDR_LOOPBACK + 6);
  sockaddr_in peer = {};
  socklen_t size = sizeof(peer);
  const FileDescriptor accepted(
      accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted.valid());
  EXPECT_EQ(size, sizeof(peer));
  EXPECT_EQ(ntohl(peer.sin_addr.s_addr), INADDR_LOOPBACK + 6);
}

TEST(OpenFilesTest, TheSoftLimitIsRaisedToTheHardOne) {
  const FewFiles few(64);
  RaiseOpenFileLimit();
  rlimit raised = {};
  getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_EQ(raised.rlim_cur, std::min<rlim_t>(raised.rlim_max, kMaxOpenFiles));
}

}  // namespace
}  // namespace pagoda::server
