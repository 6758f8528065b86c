// Memory that ends or begins at a page without access.
#ifndef PAGODA_TESTS_KERNELS_GUARDED_MEMORY_H_
#define PAGODA_TESTS_KERNELS_GUARDED_MEMORY_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace pagoda::kernels {

// A mapping that takes memory only when it is touched, so it can be larger than the machine's
// memory. Its `size` bytes end directly before a page without access. Another such page is in front
// of the mapping's first page.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t pages = (size + page - 1) / page * page;
    size_ = pages + 2 * page;
    void* mapping =
        mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
    if (mapping == MAP_FAILED) std::abort();
    mapping_ = static_cast<std::byte*>(mapping);
    if (mprotect(mapping_ + page, pages, PROT_READ | PROT_WRITE) != 0) std::abort();
    data_ = mapping_ + page + pages - size;
  }
  ~GuardedMemory() { munmap(mapping_, size_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* mapping_;
  size_t size_;
  std::byte* data_;
};

}  // namespace pagoda::kernels

#endif  // PAGODA_TESTS_KERNELS_GUARDED_MEMORY_H_
