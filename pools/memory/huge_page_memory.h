// Shared memory without a name, in huge pages, and mappings that are aligned for huge pages.
#ifndef PAGODA_POOLS_MEMORY_HUGE_PAGE_MEMORY_H_
#define PAGODA_POOLS_MEMORY_HUGE_PAGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"
#include "pools/memory/huge_pages.h"
#include "pools/memory/shared_memory.h"

namespace pagoda {

// Maps `size_bytes` of the memory behind `fd` from its start, shared. A mapping that can hold a
// transparent huge page begins at a multiple of that page's size: the kernel uses huge pages of
// shared memory only if address and offset agree. Child processes do not inherit a mapping for
// writing. `name` is for error messages. Errors: those of mmap.
absl::StatusOr<std::byte*> MapShared(int fd, uint64_t size_bytes, const std::string& name,
                                     MemoryAccess access);

// The size of the huge pages behind `fd`; 0 if they are not from the kernel's pool.
uint64_t HugetlbPageBytesOf(int fd);

// If the system can later refuse some of a mapping's pages, takes all of them now: a later touch
// would be a SIGBUS. Errors: RESOURCE_EXHAUSTED if the system refuses some now.
absl::Status TakeWhereLimited(std::byte* data, uint64_t size_bytes, uint64_t page_bytes,
                              MemoryAccess access, const HugePageProbe& probe);

// Asks for transparent huge pages in a mapping. Pages that are not taken yet will be huge, if the
// system has free ones. With Reservation::kWhole all pages are taken now. Errors:
// RESOURCE_EXHAUSTED, or the kernel's error; some pages may be taken then.
absl::Status AskForTransparent(std::byte* data, uint64_t size_bytes, Reservation reservation);

// Turns the existing pages of a mapping into huge pages, with any system setting except "deny". The
// kernel copies them, which takes seconds per GiB. A tail smaller than a huge page stays as it is.
// Errors: the kernel's; some pages may be huge then.
absl::Status Collapse(std::byte* data, uint64_t size_bytes);

// New memory without a name, zeroed and mapped for writing.
struct NamelessMemory {
  FileDescriptor fd;
  std::byte* data = nullptr;  // The owner of this object must unmap it.
  uint64_t size_bytes = 0;    // The requested size, rounded up to whole pages.
  MemoryPages pages = MemoryPages::kPlain;
};

// Takes the largest pages that the request names and the system has: pages of the kernel's pool,
// then transparent ones, then (for sparse memory only) plain ones. Pages of the pool are not used
// if they would waste more than an eighth of the size. Returns nullopt if memory with a name serves
// equally well; `shortfall` then says why. `shortfall` is also set if smaller pages than the
// largest were taken.
//
// No access to the returned memory raises SIGBUS. Pages of the kernel's pool are reserved when they
// are mapped; they are taken at once if a cgroup, a cpuset or a memory policy could refuse them.
// Other pages lie on no mounted file system, so none can be full. The size is sealed. Only this
// user can open the memory again.
std::optional<NamelessMemory> MakeNamelessMemory(const std::string& name, uint64_t size_bytes,
                                                 const PageRequest& request,
                                                 std::string* shortfall);

}  // namespace pagoda

#endif  // PAGODA_POOLS_MEMORY_HUGE_PAGE_MEMORY_H_
