#include "pools/cuda/memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "pools/cuda/context.h"
#include "pools/cuda/driver.h"

namespace pagoda::cuda {
namespace {

CUmemAllocationProp PropertiesOf(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

// Rounds `size_bytes` up to whole granules of the device.
absl::StatusOr<uint64_t> RoundUp(const Driver& driver, int device, uint64_t size_bytes) {
  const CUmemAllocationProp properties = PropertiesOf(device);
  size_t granule = 0;
  absl::Status status = driver.Check("cuMemGetAllocationGranularity",
                                     driver.cuMemGetAllocationGranularity(
                                         &granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  if (!status.ok()) return status;
  uint64_t padded = 0;
  if (size_bytes == 0 || __builtin_add_overflow(size_bytes, granule - 1, &padded)) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("GPU memory of ", size_bytes, " bytes"));
  }
  return padded / granule * granule;
}

// Reports the needed and the free bytes, so that the caller can request less.
absl::Status OutOfMemory(const Driver& driver, int device, uint64_t size_bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  if (driver.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS) free_bytes = 0;
  return MakeError(Reason::kOutOfMemory,
                   absl::StrCat("GPU memory of ", size_bytes, " bytes on CUDA device ", device,
                                ", where ", free_bytes, " of ", total_bytes, " are free"));
}

// Waits for the work of the current context's null stream. The driver's calls return earlier:
// zeroing returns at once, and a copy from pageable memory returns when the bytes have been taken.
// The memory's users do not wait for the null stream: they are non-blocking streams and other
// processes.
absl::Status FinishNullStream(const Driver& driver) {
  return driver.Check("cuStreamSynchronize", driver.cuStreamSynchronize(nullptr));
}

}  // namespace

absl::Status Memory::UseDevice(int device) {
  const absl::StatusOr<uint64_t> context = RetainContext(device);
  if (!context.ok()) return context.status();
  device_ = device;
  context_ = *context;
  return absl::OkStatus();
}

absl::Status Memory::Map(MemoryAccess access) {
  const Driver& driver = TheDriver();
  CUdeviceptr address = 0;
  absl::Status status = driver.Check(
      "cuMemAddressReserve", driver.cuMemAddressReserve(&address, allocated_bytes_, 0, 0, 0));
  if (!status.ok()) return status;
  address_ = address;
  status = driver.Check("cuMemMap", driver.cuMemMap(address, allocated_bytes_, 0, handle_, 0));
  if (!status.ok()) return status;
  mapped_ = true;
  CUmemAccessDesc allowed = {};
  allowed.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
  allowed.flags = access == MemoryAccess::kRead ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver.Check("cuMemSetAccess",
                      driver.cuMemSetAccess(address, allocated_bytes_, &allowed, 1));
}

absl::StatusOr<Memory> Memory::Create(int device, uint64_t size_bytes) {
  Memory memory;  // From here on, the destructor frees what exists.
  if (absl::Status status = memory.UseDevice(device); !status.ok()) return status;
  const Driver& driver = TheDriver();
  const Current current(memory.context_);
  if (!current.status().ok()) return current.status();
  const absl::StatusOr<uint64_t> allocated = RoundUp(driver, device, size_bytes);
  if (!allocated.ok()) return allocated.status();
  memory.size_bytes_ = size_bytes;
  memory.allocated_bytes_ = *allocated;
  const CUmemAllocationProp properties = PropertiesOf(device);
  CUmemGenericAllocationHandle handle = 0;
  absl::Status status =
      driver.Check("cuMemCreate", driver.cuMemCreate(&handle, *allocated, &properties, 0));
  if (absl::IsResourceExhausted(status)) return OutOfMemory(driver, device, *allocated);
  if (!status.ok()) return status;
  memory.handle_ = handle;
  if (status = memory.Map(MemoryAccess::kReadWrite); !status.ok()) return status;
  status = driver.Check("cuMemsetD8", driver.cuMemsetD8(memory.address_, 0, *allocated));
  if (!status.ok()) return status;
  if (status = FinishNullStream(driver); !status.ok()) return status;
  return memory;
}

absl::StatusOr<Memory> Memory::FromDescriptor(const FileDescriptor& fd, int device,
                                              uint64_t size_bytes, MemoryAccess access) {
  Memory memory;
  if (absl::Status status = memory.UseDevice(device); !status.ok()) return status;
  const Driver& driver = TheDriver();
  const Current current(memory.context_);
  if (!current.status().ok()) return current.status();
  const absl::StatusOr<uint64_t> allocated = RoundUp(driver, device, size_bytes);
  if (!allocated.ok()) return allocated.status();
  memory.size_bytes_ = size_bytes;
  memory.allocated_bytes_ = *allocated;
  CUmemGenericAllocationHandle handle = 0;
  // The driver takes the descriptor's number instead of a pointer.
  auto* const number = reinterpret_cast<void*>(static_cast<uintptr_t>(fd.get()));
  absl::Status status =
      driver.Check("cuMemImportFromShareableHandle",
                   driver.cuMemImportFromShareableHandle(&handle, number,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  if (!status.ok()) return status;
  memory.handle_ = handle;
  if (status = memory.Map(access); !status.ok()) return status;
  return memory;
}

Memory::Memory(Memory&& other) noexcept
    : device_(std::exchange(other.device_, -1)),
      context_(std::exchange(other.context_, 0)),
      handle_(std::exchange(other.handle_, 0)),
      address_(std::exchange(other.address_, 0)),
      mapped_(std::exchange(other.mapped_, false)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      allocated_bytes_(std::exchange(other.allocated_bytes_, 0)) {}

Memory::~Memory() {
  if (device_ < 0) return;
  // At the end of the process the driver may have shut down already. Then all of these calls fail.
  const Driver& driver = TheDriver();
  {
    const Current current(context_);
    if (mapped_) driver.cuMemUnmap(address_, allocated_bytes_);
    if (address_ != 0) driver.cuMemAddressFree(address_, allocated_bytes_);
    if (handle_ != 0) driver.cuMemRelease(handle_);
  }
  ReleaseContext(device_);
}

absl::StatusOr<FileDescriptor> Memory::OpenDescriptor() const {
  const Driver& driver = TheDriver();
  int fd = -1;
  absl::Status status =
      driver.Check("cuMemExportToShareableHandle",
                   driver.cuMemExportToShareableHandle(
                       &fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  if (!status.ok()) return status;
  return FileDescriptor(fd);
}

absl::Status Memory::Write(uint64_t offset_bytes, absl::Span<const std::byte> from) {
  PAGODA_CHECK(offset_bytes <= size_bytes_ && from.size() <= size_bytes_ - offset_bytes,
               "a range of the memory");
  const Driver& driver = TheDriver();
  const Current current(context_);
  if (!current.status().ok()) return current.status();
  const absl::Status status = driver.Check(
      "cuMemcpyHtoD", driver.cuMemcpyHtoD(address_ + offset_bytes, from.data(), from.size()));
  return status.ok() ? FinishNullStream(driver) : status;
}

absl::Status Memory::Read(uint64_t offset_bytes, absl::Span<std::byte> to) const {
  PAGODA_CHECK(offset_bytes <= size_bytes_ && to.size() <= size_bytes_ - offset_bytes,
               "a range of the memory");
  const Driver& driver = TheDriver();
  const Current current(context_);
  if (!current.status().ok()) return current.status();
  return driver.Check("cuMemcpyDtoH",
                      driver.cuMemcpyDtoH(to.data(), address_ + offset_bytes, to.size()));
}

}  // namespace pagoda::cuda
