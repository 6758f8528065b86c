#include "server/config/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"

namespace pagoda::server {
namespace {

using ::testing::HasSubstr;

TEST(ParseAddressTest, TakesAnyAddressInNumbers) {
  EXPECT_EQ(ParseAddress("0.0.0.0:7071")->ToString(), "0.0.0.0:7071");
  EXPECT_EQ(ParseAddress("[::]:7071")->ToString(), "[::]:7071");
  EXPECT_EQ(ParseAddress("10.1.2.3:0")->ToString(), "10.1.2.3:0");
  EXPECT_EQ(ParseAddress("localhost:7071")->ToString(), "127.0.0.1:7071");
  EXPECT_EQ(ParseAddress("[::1]:65535")->ToString(), "[::1]:65535");
  for (const char* address : {"", "7071", ":7071", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                              "127.0.0.1:-1", "10.0.0:7071", "[::g]:7071", "example.org:7071"}) {
    EXPECT_EQ(ReasonOf(ParseAddress(address).status()), Reason::kInvalidArgument) << address;
  }
}

TEST(IsLoopbackTest, TellsThisMachineFromOthers) {
  EXPECT_TRUE(IsLoopback({"127.8.9.1", 1}));
  EXPECT_TRUE(IsLoopback({"::1", 1}));
  EXPECT_TRUE(IsLoopback({"0:0:0:0:0:0:0:1", 1}));
  EXPECT_FALSE(IsLoopback({"0.0.0.0", 1}));
  EXPECT_FALSE(IsLoopback({"::", 1}));
  EXPECT_FALSE(IsLoopback({"128.0.0.1", 1}));
}

TEST(CheckCanListenTest, ATakenPortIsNamed) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const TcpAddress taken{"127.0.0.1", ntohs(address.sin_port)};

  const absl::Status refused = CheckCanListen(taken);
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr(taken.ToString()));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another process"));
  close(listener);
  EXPECT_TRUE(CheckCanListen(taken).ok());
}

// A socket file that listens until Close().
class SocketFile {
 public:
  explicit SocketFile(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
  }
  void Close() { close(fd_); }

 private:
  int fd_;
};

TEST(ClearStaleSocketTest, RemovesOnlyASocketThatNobodyListensOn) {
  const std::string path = ::testing::TempDir() + "/stale.sock";
  unlink(path.c_str());
  EXPECT_TRUE(ClearStaleSocket(path).ok()) << "nothing is there";
  SocketFile socket(path);
  EXPECT_EQ(ReasonOf(ClearStaleSocket(path)), Reason::kInvalidArgument);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  socket.Close();
  EXPECT_TRUE(ClearStaleSocket(path).ok());
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(ClearStaleSocketTest, AFileOfAnotherKindIsLeftAlone) {
  const std::string path = ::testing::TempDir() + "/file.sock";
  std::ofstream(path) << "precious";
  EXPECT_EQ(ReasonOf(ClearStaleSocket(path)), Reason::kInvalidArgument);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  unlink(path.c_str());
}

TEST(ClearStaleSocketTest, APathThatIsTooLongIsRefused) {
  EXPECT_EQ(ReasonOf(ClearStaleSocket(std::string(200, 'x'))), Reason::kInvalidArgument);
}

TEST(ClearStaleSocketTest, AFolderThatIsNotThereIsNamed) {
  const absl::Status status = ClearStaleSocket("/no/such/folder/pagoda.sock");
  EXPECT_EQ(ReasonOf(status), Reason::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("/no/such/folder"), std::string::npos) << status;
}

}  // namespace
}  // namespace pagoda::server
