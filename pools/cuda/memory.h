// GPU memory that another process can map.
#ifndef PAGODA_POOLS_CUDA_MEMORY_H_
#define PAGODA_POOLS_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "pools/memory/shared_memory.h"

namespace pagoda::cuda {

// Memory of one device, mapped into this process's device addresses. The allocation exists as long
// as any process maps it. Uses CUDA's virtual memory management, whose handles are file descriptors
// and travel like those of shared memory. Movable. A moved-from object holds nothing.
// Thread-compatible.
//
// Every process that has a descriptor can map the memory for writing. kRead binds only the process
// that requests it; it does not protect the memory from that process. A process that has used CUDA
// must not fork a child that maps.
class Memory {
 public:
  // Allocates at least `size_bytes` bytes. They are zeros when the call returns, for every stream
  // and every process. Errors: UNAVAILABLE (this build has no CUDA, or there is no driver or
  // device), INVALID_ARGUMENT (no such device, no bytes, or a device that cannot export memory as a
  // descriptor), OUT_OF_MEMORY (with the needed and the free bytes), INTERNAL for other failures of
  // the driver.
  static absl::StatusOr<Memory> Create(int device, uint64_t size_bytes);
  // Maps the memory behind another process's OpenDescriptor(). `device` and `size_bytes` must be
  // those of its creation. Errors: those of Create.
  static absl::StatusOr<Memory> FromDescriptor(const FileDescriptor& fd, int device,
                                               uint64_t size_bytes, MemoryAccess access);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  // Opens a descriptor for another process. Errors: INTERNAL.
  absl::StatusOr<FileDescriptor> OpenDescriptor() const;

  // The device address of the first byte. Aligned to the device's allocation granularity.
  uint64_t address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

  // Copies between the host and the memory. When the call returns, every stream and every process
  // sees the bytes. REQUIRES: the range lies within size_bytes(). Errors: INTERNAL.
  absl::Status Write(uint64_t offset_bytes, absl::Span<const std::byte> from);
  absl::Status Read(uint64_t offset_bytes, absl::Span<std::byte> to) const;

 private:
  Memory() = default;
  // Retains the device's context, and checks that its memory can be exported.
  absl::Status UseDevice(int device);
  // Maps the allocation at an address.
  absl::Status Map(MemoryAccess access);

  int device_ = -1;       // Its primary context is held while this is not -1.
  uint64_t context_ = 0;  // A CUcontext.
  uint64_t handle_ = 0;   // A CUmemGenericAllocationHandle; 0: none.
  uint64_t address_ = 0;  // 0: not reserved.
  bool mapped_ = false;
  uint64_t size_bytes_ = 0;
  uint64_t allocated_bytes_ = 0;  // size_bytes_, rounded up to whole granules.
};

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_MEMORY_H_
