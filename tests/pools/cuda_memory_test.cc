#include "pools/cuda/memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace pagoda::cuda {
namespace {

constexpr int kDevice = 0;
constexpr uint64_t kBytes = 3 << 20;  // More than one granule, but not a multiple of it.

std::vector<std::byte> Pattern(uint8_t seed) {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte((i * 31 + i / 4096 + seed) % 251);
  return bytes;
}

void SendDescriptor(int socket, int fd) {
  char byte = 0;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fd))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(fd));
  std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  ASSERT_EQ(sendmsg(socket, &message, 0), 1);
}

FileDescriptor ReceiveDescriptor(int socket) {
  char byte;
  iovec data = {.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  int fd = -1;
  if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != nullptr) {
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  }
  return FileDescriptor(fd);
}

// The other process reads the bytes of the first one, and writes bytes for it to read. It reports
// on the socket which step failed, 0 for none.
int ReadAndWriteBack(int socket) {
  // The fake driver has no delays in this process, which thus sees only bytes that are already
  // there.
  unsetenv("FAKE_CUDA_DELAY_US");
  const FileDescriptor fd = ReceiveDescriptor(socket);
  if (!fd.valid()) return 1;
  auto memory = Memory::FromDescriptor(fd, kDevice, kBytes, MemoryAccess::kReadWrite);
  if (!memory.ok()) return 2;
  std::vector<std::byte> seen(kBytes);
  if (!memory->Read(0, absl::MakeSpan(seen)).ok()) return 3;
  if (seen != Pattern(1)) return 4;
  return memory->Write(0, Pattern(2)).ok() ? 0 : 5;
}

// Whether to skip the test: there is no device, and none is required.
bool MayBeSkipped(const absl::Status& status) {
  return absl::IsUnavailable(status) && std::getenv("PAGODA_MUST_HAVE_CUDA") == nullptr;
}

// CUDA does not survive a fork, so the other process is forked before this one uses CUDA.
class OtherProcess {
 public:
  OtherProcess() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char failed = static_cast<char>(ReadAndWriteBack(ends[1]));
      _exit(write(ends[1], &failed, 1) == 1 ? 0 : 1);
    }
    close(ends[1]);
    socket_ = FileDescriptor(ends[0]);
  }
  ~OtherProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  int socket() const { return socket_.get(); }

 private:
  pid_t pid_ = 0;
  FileDescriptor socket_;
};

TEST(CudaMemoryTest, AnotherProcessReadsAndWritesThroughADescriptor) {
  const OtherProcess other;
  auto memory = Memory::Create(kDevice, kBytes);
  if (MayBeSkipped(memory.status())) GTEST_SKIP() << memory.status();
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<std::byte> bytes(kBytes, std::byte{1});
  ASSERT_TRUE(memory->Read(0, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(bytes, std::vector(kBytes, std::byte{0}));
  ASSERT_TRUE(memory->Write(0, Pattern(1)).ok());

  const auto descriptor = memory->OpenDescriptor();
  ASSERT_TRUE(descriptor.ok()) << descriptor.status();
  SendDescriptor(other.socket(), descriptor->get());
  char failed = -1;
  ASSERT_EQ(recv(other.socket(), &failed, 1, 0), 1);
  EXPECT_EQ(failed, 0) << "the step of the other process that failed";
  ASSERT_TRUE(memory->Read(0, absl::MakeSpan(bytes)).ok());
  EXPECT_EQ(bytes, Pattern(2));
}

TEST(CudaMemoryTest, WhatCannotBeMadeIsRefusedAndNothingIsLeft) {
  const auto memory = Memory::Create(kDevice, kBytes);
  if (MayBeSkipped(memory.status())) GTEST_SKIP() << memory.status();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(absl::IsInvalidArgument(Memory::Create(kDevice, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Memory::Create(1 << 20, kBytes).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(Memory::Create(kDevice, uint64_t{1} << 45).status()));
  EXPECT_FALSE(
      Memory::FromDescriptor(FileDescriptor(dup(0)), kDevice, kBytes, MemoryAccess::kReadWrite)
          .ok());
}

TEST(CudaMemoryTest, WithoutADriverThereIsAStatusThatSaysSo) {
  const auto memory = Memory::Create(kDevice, kBytes);
  if (memory.ok()) GTEST_SKIP() << "there is a device";
  EXPECT_TRUE(absl::IsUnavailable(memory.status())) << memory.status();
  EXPECT_FALSE(memory.status().message().empty());
}

}  // namespace
}  // namespace pagoda::cuda
