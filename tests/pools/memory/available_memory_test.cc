#include "pools/memory/available_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/file_descriptor.h"
#include "pools/memory/own_memory.h"
#include "pools/memory/shared_memory.h"

namespace pagoda {
namespace {

constexpr char kMount1[] = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
constexpr char kMount2[] = "30 23 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";

// A folder with the files of a machine that has 1,000 KiB available.
class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest() : root_(absl::StrCat(testing::TempDir(), "/memory-", getpid())) {
    std::filesystem::remove_all(root_);
    Write("/proc/meminfo", "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n");
  }
  ~AvailableMemoryTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  uint64_t Available() const { return AvailableMemoryBytes(root_).value_or(0); }

  std::string root_;
};

TEST_F(AvailableMemoryTest, WithoutCgroupsItIsTheMachines) {
  EXPECT_EQ(Available(), 1000u * 1024);
  EXPECT_FALSE(TightestCgroupLimit(root_).has_value());
  EXPECT_TRUE(absl::IsNotFound(AvailableMemoryBytes(root_ + "/absent").status()));
}

TEST_F(AvailableMemoryTest, EachParentOfVersion2CanBeTheTightest) {
  Write("/proc/self/mountinfo", kMount2);
  Write("/proc/self/cgroup", "0::/pods/one/box\n");
  const std::string top = "/sys/fs/cgroup/pods";
  Write(top + "/one/box/memory.max", "max\n");
  EXPECT_EQ(Available(), 1000u * 1024) << "max is no limit, and missing files are none";
  Write(top + "/memory.max", "600000\n");
  Write(top + "/memory.current", "100000\n");
  EXPECT_EQ(Available(), 500'000u);
  Write(top + "/one/memory.max", "700000\n");
  Write(top + "/one/memory.current", "400000\n");
  EXPECT_EQ(Available(), 300'000u) << "the parent with the larger limit leaves less";
  Write(top + "/one/box/memory.max", "200000\n");
  EXPECT_EQ(Available(), 200'000u);
  EXPECT_EQ(TightestCgroupLimit(root_)->file, top + "/one/box/memory.max");
  EXPECT_EQ(TightestCgroupLimit(root_)->limit_bytes, 200'000u);
}

TEST_F(AvailableMemoryTest, PagesOfFilesAreNotUsed) {
  Write("/proc/self/mountinfo", kMount2);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "500000\n");
  Write("/sys/fs/cgroup/memory.current", "450000\n");
  EXPECT_EQ(Available(), 50'000u);
  Write("/sys/fs/cgroup/memory.stat",
        "anon 5\nactive_file 100000\ninactive_file 200000\nshmem 7\n");
  EXPECT_EQ(Available(), 350'000u);
  Write("/sys/fs/cgroup/memory.current", "900000\n");
  EXPECT_EQ(Available(), 0u) << "more is used than allowed";
}

TEST_F(AvailableMemoryTest, ALimitAboveTheMachineChangesNothing) {
  Write("/proc/self/mountinfo", kMount2);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "5000000\n");
  EXPECT_EQ(Available(), 1000u * 1024);
}

TEST_F(AvailableMemoryTest, Version1CountsItsParentsAndThoseThatTheMountHides) {
  Write("/proc/self/mountinfo", kMount1);
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n");
  const std::string memory = "/sys/fs/cgroup/memory";
  Write(memory + "/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Available(), 1000u * 1024);
  Write(memory + "/docker/memory.limit_in_bytes", "800000\n");
  Write(memory + "/docker/memory.usage_in_bytes", "300000\n");
  Write(memory + "/docker/memory.stat", "active_file 9\ntotal_inactive_file 100000\n");
  EXPECT_EQ(Available(), 600'000u);
  Write(memory + "/docker/abc/memory.stat", "hierarchical_memory_limit 250000\n");
  EXPECT_EQ(Available(), 250'000u);
  EXPECT_EQ(TightestCgroupLimit(root_)->file, memory + "/docker/abc/memory.stat");
}

TEST_F(AvailableMemoryTest, AContainersMountBeginsAtItsOwnCgroup) {
  Write("/proc/self/mountinfo",
        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  Write("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  EXPECT_EQ(Available(), 400'000u);
  Write("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "300000\n");
  EXPECT_EQ(Available(), 300'000u);
}

TEST_F(AvailableMemoryTest, SharedMemoryAboveTheLimitIsRefusedWithTheLimitsFileAndNumber) {
  Write("/proc/self/mountinfo", kMount2);
  Write("/proc/self/cgroup", "0::/box\n");
  Write("/sys/fs/cgroup/box/memory.max", "100000\n");
  const FileDescriptor fd(memfd_create("limited", MFD_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  const absl::Status refused = ReserveMemory(fd.get(), "/limited", 1 << 20, root_);
  EXPECT_EQ(ReasonOf(refused), Reason::kOutOfMemory);
  EXPECT_NE(refused.message().find("/sys/fs/cgroup/box/memory.max"), std::string::npos) << refused;
  EXPECT_NE(refused.message().find("100000"), std::string::npos) << refused;
  struct stat info;
  ASSERT_EQ(fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0) << "no page was taken";

  ASSERT_TRUE(ReserveMemory(fd.get(), "/limited", 65536, root_).ok());
  // Pages that exist are not asked for again.
  Write("/sys/fs/cgroup/box/memory.max", "4096\n");
  EXPECT_TRUE(ReserveMemory(fd.get(), "/limited", 65536, root_).ok());
}

TEST(TakePagesTest, AllPagesAreTakenAndCounted) {
  constexpr uint64_t kBytes = (uint64_t{200} << 20) + 4096;  // More than one thread's piece.
  const FileDescriptor fd(memfd_create("taken", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), kBytes), 0);
  void* const data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const absl::Cleanup unmap = [data] { munmap(data, kBytes); };
  const uint64_t before = TakenMemoryBytes();
  ASSERT_EQ(TakePages(static_cast<std::byte*>(data), kBytes, MADV_POPULATE_WRITE), 0);
  EXPECT_EQ(TakenMemoryBytes() - before, kBytes);
  struct stat info;
  ASSERT_EQ(fstat(fd.get(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_blocks) * 512, kBytes);
  ASSERT_EQ(ftruncate(fd.get(), 4096), 0);
  EXPECT_NE(TakePages(static_cast<std::byte*>(data), kBytes, MADV_POPULATE_WRITE), 0)
      << "the kernel's refusal is no signal";
}

// A cgroup of this machine, if this process may make one.
TEST(RealCgroupTest, AProcessInItHearsOfTheLimitAndIsNotKilled) {
  const bool version_2 = std::filesystem::exists("/sys/fs/cgroup/cgroup.controllers");
  const std::string folder = absl::StrCat("/sys/fs/cgroup/", version_2 ? "" : "memory/",
                                          "pagoda-available-memory-", getpid());
  const std::string file = folder + (version_2 ? "/memory.max" : "/memory.limit_in_bytes");
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) GTEST_SKIP() << "no cgroup can be made: " << error.message();
  const absl::Cleanup remove = [&folder] { rmdir(folder.c_str()); };
  std::ofstream(file) << (64 << 20) << std::flush;
  if (access(file.c_str(), W_OK) != 0) GTEST_SKIP() << "the cgroup limits no memory";

  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::ofstream(folder + "/cgroup.procs") << getpid() << std::flush;
    const std::optional<CgroupLimit> limit = TightestCgroupLimit();
    if (!limit.has_value() || limit->limit_bytes > 64 << 20) _exit(2);
    if (AvailableMemoryBytes().value_or(uint64_t{1} << 60) > 64 << 20) _exit(3);
    const auto memory = SharedMemory::Create(absl::StrCat("/pagoda-limited-", getpid()), 80 << 20);
    _exit(ReasonOf(memory.status()) == Reason::kOutOfMemory ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace pagoda
