#include "base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <utility>

namespace pagoda {
namespace {

FileDescriptor Open() { return FileDescriptor(memfd_create("test", MFD_CLOEXEC)); }

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptorTest, ClosesAtItsEnd) {
  int number = -1;
  {
    const FileDescriptor fd = Open();
    ASSERT_TRUE(fd.valid());
    number = fd.get();
    EXPECT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(FileDescriptorTest, ADefaultObjectOwnsNone) {
  const FileDescriptor none;
  EXPECT_FALSE(none.valid());
  EXPECT_EQ(none.get(), -1);
}

TEST(FileDescriptorTest, AMoveHandsTheDescriptorOver) {
  FileDescriptor from = Open();
  const int number = from.get();
  const FileDescriptor to = std::move(from);
  EXPECT_FALSE(from.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(to.get(), number);
  EXPECT_TRUE(IsOpen(number));
}

TEST(FileDescriptorTest, AnAssignmentClosesThePreviousDescriptor) {
  FileDescriptor fd = Open();
  const int previous = fd.get();
  FileDescriptor other = Open();
  const int number = other.get();
  fd = std::move(other);
  EXPECT_FALSE(IsOpen(previous));
  EXPECT_EQ(fd.get(), number);
  EXPECT_TRUE(IsOpen(number));
}

TEST(FileDescriptorTest, AReleasedDescriptorStaysOpen) {
  int number = -1;
  {
    FileDescriptor fd = Open();
    number = fd.Release();
    EXPECT_FALSE(fd.valid());
  }
  EXPECT_TRUE(IsOpen(number));
  const FileDescriptor closes(number);
}

}  // namespace
}  // namespace pagoda
