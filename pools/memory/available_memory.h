// The memory that this process can still take: of the machine, and of its cgroup.
#ifndef PAGODA_POOLS_MEMORY_AVAILABLE_MEMORY_H_
#define PAGODA_POOLS_MEMORY_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace pagoda {

// The memory limit of a cgroup that leaves this process the least.
struct CgroupLimit {
  std::string file;  // "/sys/fs/cgroup/kubepods/memory.max"
  uint64_t limit_bytes = 0;
  // The limit less what the cgroup uses. Pages of files do not count as used, because the kernel
  // drops them first; those of shared memory do.
  uint64_t available_bytes = 0;
};

// Reads the limits of the process's cgroup and of every visible parent, in version 2 and version 1
// of cgroups. In version 1 the parents that the mount hides count too. Returns nullopt without a
// limit. `root` is the folder that has proc and sys, for tests; empty is this machine.
std::optional<CgroupLimit> TightestCgroupLimit(const std::string& root = "");

// The memory that can be used without swapping: the lesser of the kernel's estimate for the machine
// and of TightestCgroupLimit. Errors: NotFound if the kernel makes no estimate.
absl::StatusOr<uint64_t> AvailableMemoryBytes(const std::string& root = "");

}  // namespace pagoda

#endif  // PAGODA_POOLS_MEMORY_AVAILABLE_MEMORY_H_
