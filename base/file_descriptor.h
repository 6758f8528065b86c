#ifndef PAGODA_BASE_FILE_DESCRIPTOR_H_
#define PAGODA_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace pagoda {

// Owns an open file descriptor, and closes it. Movable; a moved-from or default object owns none.
// Thread-compatible. Needs only the system: the Python extension is compiled without Abseil.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }

  int get() const { return fd_; }  // -1: none.
  bool valid() const { return fd_ >= 0; }
  // The caller owns it from now on.
  int Release() { return std::exchange(fd_, -1); }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
  }

  int fd_ = -1;
};

}  // namespace pagoda

#endif  // PAGODA_BASE_FILE_DESCRIPTOR_H_
