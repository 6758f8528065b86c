#include "server/supervision/supervisor.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"
#include "pools/memory/own_memory.h"
#include "tests/server/notify_socket.h"

namespace pagoda::server {
namespace {

class SupervisorTest : public ::testing::Test {
 protected:
  NotifySocket socket_{absl::StrCat(::testing::TempDir(), "/notify-", getpid(), ".sock")};
  Supervisor supervisor_;
};

TEST_F(SupervisorTest, HearsOfTheStartTheServiceAndTheDrain) {
  supervisor_.Status("starting");
  EXPECT_EQ(socket_.Receive(), "STATUS=starting");
  supervisor_.Ready("serving");
  EXPECT_EQ(socket_.Receive(), "READY=1\nSTATUS=serving");
  supervisor_.Alive();
  EXPECT_EQ(socket_.Receive(), "WATCHDOG=1");
  supervisor_.Stopping("draining");
  EXPECT_EQ(socket_.Receive(), "STOPPING=1\nSTATUS=draining");
  EXPECT_EQ(socket_.TryReceive(), "");
}

TEST_F(SupervisorTest, AStatusCannotCarryAnotherVariable) {
  supervisor_.Status("loading a\nREADY=1");
  EXPECT_EQ(socket_.Receive(), "STATUS=loading a READY=1");
}

TEST_F(SupervisorTest, TheStartSaysHowMuchMemoryIsTaken) {
  EXPECT_EQ(supervisor_.StartText(), "starting");
  const FileDescriptor memory(memfd_create("pool", MFD_CLOEXEC));
  supervisor_.TakingMemory(uint64_t{8} << 20);
  EXPECT_EQ(supervisor_.StartText(), "starting: 0 % of 8 MiB of memory are taken");
  ASSERT_TRUE(ReserveMemory(memory.get(), "/pool", uint64_t{2} << 20).ok());
  EXPECT_EQ(supervisor_.StartText(), "starting: 25 % of 8 MiB of memory are taken");
  // Pages that are there already are not counted again.
  ASSERT_TRUE(ReserveMemory(memory.get(), "/pool", uint64_t{4} << 20).ok());
  EXPECT_EQ(supervisor_.StartText(), "starting: 50 % of 8 MiB of memory are taken");
  supervisor_.TakingMemory(0);
  EXPECT_EQ(supervisor_.StartText(), "starting");
}

TEST_F(SupervisorTest, TheWatchdogsTimeIsThatOfItsVariables) {
  EXPECT_EQ(supervisor_.watchdog_timeout(), absl::ZeroDuration());
  socket_.AskForWatchdog("30000000", absl::StrCat(getpid()));
  EXPECT_EQ(supervisor_.watchdog_timeout(), absl::Seconds(30));
  socket_.AskForWatchdog("30000000", absl::StrCat(getppid()));
  EXPECT_EQ(supervisor_.watchdog_timeout(), absl::ZeroDuration()) << "it is another process's";
  socket_.AskForWatchdog("soon", absl::StrCat(getpid()));
  EXPECT_EQ(supervisor_.watchdog_timeout(), absl::ZeroDuration());
}

TEST(SupervisorWithoutFileTest, AnAbstractSocketIsHeardToo) {
  NotifySocket socket(absl::StrCat("@pagoda-notify-", getpid()));
  Supervisor().Ready("serving");
  EXPECT_EQ(socket.Receive(), "READY=1\nSTATUS=serving");
}

TEST(SupervisorWithoutFileTest, WithoutAServiceManagerNothingIsSentOrAskedFor) {
  ASSERT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
  Supervisor supervisor;
  ::testing::internal::CaptureStderr();
  supervisor.Ready("serving");
  supervisor.Alive();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(supervisor.watchdog_timeout(), absl::ZeroDuration());
}

TEST(SupervisorWithoutFileTest, AServiceManagerThatIsGoneIsLoggedAndNothingElse) {
  setenv("NOTIFY_SOCKET", "/no/such/folder/notify.sock", 1);
  ::testing::internal::CaptureStderr();
  Supervisor().Ready("serving");
  const std::string logged = ::testing::internal::GetCapturedStderr();
  unsetenv("NOTIFY_SOCKET");
  EXPECT_NE(logged.find("READY=1"), std::string::npos) << logged;
}

}  // namespace
}  // namespace pagoda::server
