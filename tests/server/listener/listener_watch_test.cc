#include "server/listener/listener_watch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"
#include "server/config/listen_address.h"

namespace pagoda::server {
namespace {

// One listener, which accepts when the test says so.
class ListenerWatchTest : public ::testing::TestWithParam<std::string> {
 protected:
  void Listen() {
    if (GetParam() == "unix") {
      path_ = absl::StrCat(::testing::TempDir(), "/watched-", getpid(), ".sock");
      unlink(path_.c_str());
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
      listener_ = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ASSERT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
                0);
      ASSERT_EQ(listen(listener_.get(), 8), 0);
      watch_.Add(path_, SOCK_SEQPACKET);
      name_ = path_;
      return;
    }
    absl::StatusOr<ListeningSocket> listening = ListenOn({GetParam(), 0}, 8);
    ASSERT_TRUE(listening.ok()) << listening.status();
    listener_ = std::move(listening->fd);
    watch_.Add(listening->address);
    name_ = listening->address.ToString();
  }
  ~ListenerWatchTest() override {
    if (!path_.empty()) unlink(path_.c_str());
  }

  FileDescriptor Accept() const {
    return FileDescriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  std::string path_;
  std::string name_;
  FileDescriptor listener_;
  ListenerWatch watch_;
};

INSTANTIATE_TEST_SUITE_P(Listeners, ListenerWatchTest,
                         ::testing::Values("127.0.0.1", "0.0.0.0", "::1", "unix"));

TEST_P(ListenerWatchTest, AListenerThatAcceptsNothingIsSilentUntilItAccepts) {
  Listen();
  watch_.Look();
  EXPECT_EQ(watch_.Longest().time, absl::ZeroDuration());
  watch_.Look();
  watch_.Look();
  EXPECT_EQ(watch_.Longest().time, 2 * ListenerWatch::kInterval);
  EXPECT_EQ(watch_.Longest().listener, name_);
  // The server does not see the watch's connection.
  EXPECT_FALSE(Accept().valid());
  EXPECT_EQ(errno, EAGAIN);
  watch_.Look();
  EXPECT_EQ(watch_.Longest().time, absl::ZeroDuration());
  watch_.Look();
  EXPECT_EQ(watch_.Longest().time, ListenerWatch::kInterval);
}

TEST_P(ListenerWatchTest, AListenerThatHasClosedIsSilent) {
  Listen();
  listener_ = FileDescriptor();
  watch_.Look();
  watch_.Look();
  EXPECT_EQ(watch_.Longest().time, ListenerWatch::kInterval);
}

}  // namespace
}  // namespace pagoda::server
