// Promises of the two engines beyond moving bytes, which slab_file_test.cc tests.
#include "pools/file/file_engine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/file_descriptor.h"
#include "tests/pools/file/slab_test_file.h"

namespace pagoda {
namespace {

using Kind = FileRequest::Kind;

class FileEngineTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override {
    if (GetParam() == EngineKind::kUring && !MakeUringEngine(0, 1).ok()) GTEST_SKIP();
  }
  // A file of that many bytes, written to the disk.
  FileDescriptor MakeFile(uint64_t size_bytes) {
    FileDescriptor fd(open(folder_.file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    const Bytes bytes = RandomBytes(1, size_bytes);
    EXPECT_EQ(pwrite(fd.get(), bytes.data(), bytes.size(), 0), ssize_t(bytes.size()));
    EXPECT_EQ(fsync(fd.get()), 0);
    return fd;
  }
  std::unique_ptr<FileEngine> MakeEngine(int fd, uint32_t depth) {
    absl::StatusOr<std::unique_ptr<FileEngine>> engine = MakeFileEngine(GetParam(), fd, depth);
    if (!engine.ok()) std::abort();
    return *std::move(engine);
  }
  static FileRequest Read(uint64_t offset_bytes, std::byte* to, size_t bytes,
                          std::function<void(int)> done) {
    FileRequest request{.kind = Kind::kRead, .offset_bytes = offset_bytes};
    request.pieces.push_back({to, bytes});
    request.done = std::move(done);
    return request;
  }
  static int RunRead(FileEngine& engine, uint64_t offset_bytes, std::byte* to, size_t bytes) {
    absl::Notification done;
    int result = 0;
    engine.Submit(Read(offset_bytes, to, bytes, [&](int error) {
      result = error;
      done.Notify();
    }));
    done.WaitForNotification();
    return result;
  }

  TestFolder folder_{"/var/tmp"};
};

TEST_P(FileEngineTest, AReadThatMeetsTheFilesEndSaysSo) {
  const FileDescriptor fd = MakeFile(4096 + 100);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, 8192));
  for (const bool direct : {false, true}) {
    if (direct && fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_DIRECT) != 0) break;
    const std::unique_ptr<FileEngine> engine = MakeEngine(fd.get(), 1);
    EXPECT_EQ(RunRead(*engine, 0, memory, 4096), 0);
    EXPECT_EQ(RunRead(*engine, 0, memory, 8192), kEndOfFile) << "in a page, direct " << direct;
    EXPECT_EQ(RunRead(*engine, 8192, memory, 4096), kEndOfFile) << "behind, direct " << direct;
  }
  std::free(memory);
}

// The kernel cancels requests that it still keeps for a thread when the thread ends.
TEST_P(FileEngineTest, RequestsOfThreadsThatEndAreCarriedOut) {
  constexpr uint64_t kReads = 8, kReadBytes = 64 << 10, kThreads = 32;
  const FileDescriptor fd = MakeFile(kThreads * kReads * kReadBytes);
  const Bytes expected = RandomBytes(1, kThreads * kReads * kReadBytes);
  // Drops the cached pages, so that reads go to the disk one by one.
  ASSERT_EQ(posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  ASSERT_EQ(posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM), 0);
  const std::unique_ptr<FileEngine> engine = MakeEngine(fd.get(), kThreads * kReads);
  Bytes read(expected.size());
  std::atomic<int> failed = 0;
  for (uint64_t t = 0; t < kThreads; ++t) {
    std::thread([&] {
      for (uint64_t i = 0; i < kReads; ++i) {
        const uint64_t at = (t * kReads + i) * kReadBytes;
        engine->Submit(
            Read(at, read.data() + at, kReadBytes, [&](int error) { failed += error != 0; }));
      }
    }).join();
  }
  engine->Stop();
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(read == expected);
}

TEST_P(FileEngineTest, CompletionsMaySubmitWhileItStops) {
  const FileDescriptor fd = MakeFile(4096);
  const std::unique_ptr<FileEngine> engine = MakeEngine(fd.get(), 1);
  std::byte memory[4096];
  int left = 20;
  absl::Notification began;
  std::function<void(int)> next = [&](int error) {
    EXPECT_EQ(error, 0);
    if (!began.HasBeenNotified()) began.Notify();
    usleep(1000);
    if (--left > 0) engine->Submit(Read(0, memory, sizeof(memory), next));
  };
  engine->Submit(Read(0, memory, sizeof(memory), next));
  began.WaitForNotification();
  engine->Stop();
  EXPECT_EQ(left, 0);
}

INSTANTIATE_TEST_SUITE_P(Engines, FileEngineTest,
                         ::testing::Values(EngineKind::kUring, EngineKind::kThreads));

}  // namespace
}  // namespace pagoda
