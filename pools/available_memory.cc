#include "pools/available_memory.h"

#include <cstdio>
#include <fstream>
#include <string>

namespace pagoda {

absl::StatusOr<uint64_t> AvailableMemoryBytes() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    unsigned long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kibibytes) == 1) {
      return uint64_t{kibibytes} * 1024;
    }
  }
  return absl::NotFoundError("/proc/meminfo has no MemAvailable");
}

}  // namespace pagoda
