// Shared memory without a name in huge pages, and mappings that huge pages fit into.
#ifndef PAGODA_POOLS_HUGE_PAGE_MEMORY_H_
#define PAGODA_POOLS_HUGE_PAGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pools/file_descriptor.h"
#include "pools/huge_pages.h"
#include "pools/shared_memory.h"

namespace pagoda {

// Maps `size_bytes` of the memory behind `fd` from its start, shared. A mapping that can hold a
// transparent huge page begins at a multiple of one: the kernel uses huge pages of shared memory
// only where address and offset agree. A mapping for writing is not inherited by children. `name`
// is for errors. Errors: those of mmap.
absl::StatusOr<std::byte*> MapShared(int fd, uint64_t size_bytes, const std::string& name,
                                     MemoryAccess access);

// The page size of the huge pages behind `fd`; 0 where it has none of the kernel's pool.
uint64_t HugetlbPageBytesOf(int fd);

// Takes all pages of a mapping now, where the system may refuse some of them later: a touch would
// be a SIGBUS then. Errors: RESOURCE_EXHAUSTED where it refuses some now.
absl::Status TakeWhereLimited(std::byte* data, uint64_t size_bytes, uint64_t page_bytes,
                              MemoryAccess access, const HugePageProbe& probe);

// Asks for transparent huge pages in a mapping. What is not taken yet is huge from now on, where
// the system has any; with Reservation::kWhole all of it is taken. Errors: RESOURCE_EXHAUSTED, or
// what the kernel says; then some may be taken.
absl::Status AskForTransparent(std::byte* data, uint64_t size_bytes, Reservation reservation);

// Makes huge pages of the pages that a mapping has, whatever the system's setting but "deny" is. It
// copies them, which takes seconds for each GiB. A tail smaller than a huge page stays as it is.
// Errors: what the kernel says; then some may be huge.
absl::Status Collapse(std::byte* data, uint64_t size_bytes);

// New memory without a name, zeroed and mapped for writing.
struct NamelessMemory {
  FileDescriptor fd;
  std::byte* data = nullptr;  // Unmapped by whoever owns this.
  uint64_t size_bytes = 0;    // What was asked for, in whole pages.
  MemoryPages pages = MemoryPages::kPlain;
};

// The largest pages that the request names and the system has: those of the kernel's pool, then
// transparent ones; then, for sparse memory alone, plain ones. Pages of the pool are not used where
// they would waste more than an eighth of the size. None where memory with a name is as good;
// `shortfall` then says why, and also where smaller pages than the largest were taken.
//
// No touch of what this returns is a SIGBUS: pages of the kernel's pool are reserved when they are
// mapped, and taken at once where a cgroup, a cpuset or a memory policy could refuse them; other
// pages lie on no mounted file system, so none can be full. The size is sealed. Only this user may
// open it again.
std::optional<NamelessMemory> MakeNamelessMemory(const std::string& name, uint64_t size_bytes,
                                                 const PageRequest& request,
                                                 std::string* shortfall);

}  // namespace pagoda

#endif  // PAGODA_POOLS_HUGE_PAGE_MEMORY_H_
