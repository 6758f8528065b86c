#include "engine/checkpoint/files/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace pagoda {
namespace {

constexpr size_t kBytes = size_t{1} << 20;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() : path_(absl::StrCat(testing::TempDir(), "/mapped-", getpid())) {
    std::ofstream(path_) << std::string(kBytes, 'a');
    absl::StatusOr<MappedFile> file = MappedFile::Open(path_);
    if (file.ok()) file_.emplace(*std::move(file));
  }
  void SetUp() override { ASSERT_TRUE(file_.has_value()); }
  ~MappedFileTest() override { std::remove(path_.c_str()); }

  void ExpectChanged() const {
    const absl::Status status = file_->CheckUnchanged();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find(path_), std::string::npos) << status;
  }
  size_t CountOf(char wanted) const {
    size_t count = 0;
    for (const char c : file_->text()) count += c == wanted;
    return count;
  }

  const std::string path_;
  std::optional<MappedFile> file_;
};

TEST_F(MappedFileTest, BytesThatAreCutReadAsZeroesAndAreNoticed) {
  ASSERT_TRUE(file_->CheckUnchanged().ok());
  ASSERT_EQ(truncate(path_.c_str(), 8192), 0);
  EXPECT_EQ(CountOf('a'), 8192u);
  EXPECT_EQ(CountOf('\0'), kBytes - 8192);
  ExpectChanged();
  // The file is long again, but its bytes are not what they were.
  ASSERT_EQ(truncate(path_.c_str(), kBytes), 0);
  ExpectChanged();
}

TEST_F(MappedFileTest, ACutWithinAPageRaisesNoSignalAndIsNoticed) {
  ASSERT_EQ(truncate(path_.c_str(), kBytes - 10), 0);
  EXPECT_EQ(CountOf('\0'), 10u);
  ExpectChanged();
}

TEST_F(MappedFileTest, AnOverwrittenFileIsNoticed) {
  const std::filesystem::file_time_type before = std::filesystem::last_write_time(path_);
  // The file system's clock ticks once in some milliseconds.
  while (std::filesystem::last_write_time(path_) == before) {
    std::fstream(path_, std::ios::in | std::ios::out) << "b";
  }
  ExpectChanged();
}

TEST_F(MappedFileTest, AFileThatReplacesItIsAnother) {
  const std::string fresh = path_ + ".new";
  std::ofstream(fresh) << "short";
  ASSERT_EQ(std::rename(fresh.c_str(), path_.c_str()), 0);
  EXPECT_EQ(CountOf('a'), kBytes);
  EXPECT_TRUE(file_->CheckUnchanged().ok());
}

TEST_F(MappedFileTest, ThreadsThatMeetTheCutTogetherLiveOn) {
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  std::vector<std::thread> threads;
  std::atomic<size_t> zeroes = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      // Other mappings come and go meanwhile.
      for (int j = 0; j < 20; ++j) (void)MappedFile::Open("/proc/self/exe");
      zeroes += CountOf('\0');
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(zeroes, 4 * kBytes);
  ExpectChanged();
}

TEST_F(MappedFileTest, OnlyTheCutFileCountsAsChanged) {
  const absl::StatusOr<MappedFile> other = MappedFile::Open("/proc/self/exe");
  ASSERT_TRUE(other.ok());
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  EXPECT_EQ(CountOf('\0'), kBytes);
  ExpectChanged();
  EXPECT_TRUE(other->CheckUnchanged().ok());
}

// What a child's status says of its end.
int StatusOf(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST_F(MappedFileTest, OtherBusErrorsStillEndTheProcess) {
  const int own = StatusOf([] {
    const int fd = memfd_create("cut", MFD_CLOEXEC);
    if (ftruncate(fd, 4096) != 0) _exit(2);
    const auto* bytes =
        static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
    if (ftruncate(fd, 0) != 0) _exit(3);
    (void)bytes[0];
  });
  EXPECT_TRUE(WIFSIGNALED(own) && WTERMSIG(own) == SIGBUS) << own;
  const int sent = StatusOf([] { raise(SIGBUS); });
  EXPECT_TRUE(WIFSIGNALED(sent) && WTERMSIG(sent) == SIGBUS) << sent;
}

}  // namespace
}  // namespace pagoda
