#ifndef PAGODA_ENGINE_MODEL_CPU_LOOPS_HOST_MEMORY_H_
#define PAGODA_ENGINE_MODEL_CPU_LOOPS_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace pagoda {

// Memory in huge pages if the system provides them, so that reading gigabytes of weights does not
// wait for page tables. It is zeroed, and uses physical memory only for touched pages. Movable.
class HostMemory {
 public:
  // Errors: OUT_OF_MEMORY.
  static absl::StatusOr<HostMemory> Allocate(uint64_t bytes);

  HostMemory() = default;
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;

  // Aligned to a page; null if nothing was allocated.
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  HostMemory(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_LOOPS_HOST_MEMORY_H_
