// Memory. Allocations are memory files; a device address does not give access to their bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "tests/pools/fake_cuda/state.h"

namespace fake_cuda {
namespace {

constexpr uint64_t kGranule = uint64_t{2} << 20;
constexpr char kFileName[] = "fake-cuda-memory";

struct Allocation {
  int fd = -1;
  uint64_t bytes = 0;
  bool imported = false;
  bool handle = true;  // The handle is not released.
  int mappings = 0;
};
struct Mapping {
  uint64_t bytes = 0;
  uint64_t allocation = 0;
  std::byte* data = nullptr;  // The address of the bytes.
  bool readable = false;
  bool writable = false;
};

struct Memory {
  std::shared_mutex mutex;
  uint64_t last_handle = 0;
  std::map<uint64_t, Allocation> allocations;  // By handle.
  std::map<uint64_t, uint64_t> reservations;   // Bytes by address.
  std::map<uint64_t, Mapping> mappings;        // By address.
  std::map<uint64_t, uint64_t> registered;     // Bytes by host address.
};

Memory& TheMemory() {
  static Memory* const memory = new Memory;
  return *memory;
}

// The entry with the address, in a map by address whose values have the bytes.
template <class Map, class Bytes>
auto Holding(Map& map, uint64_t address, Bytes bytes_of) {
  auto it = map.upper_bound(address);
  if (it == map.begin()) return map.end();
  --it;
  return address - it->first < bytes_of(it->second) ? it : map.end();
}
uint64_t BytesOfMapping(const Mapping& mapping) { return mapping.bytes; }
uint64_t BytesOf(uint64_t bytes) { return bytes; }

uint64_t AllocatedBytes(const Memory& memory) {
  uint64_t bytes = 0;
  for (const auto& [handle, allocation] : memory.allocations) {
    if (!allocation.imported) bytes += allocation.bytes;
  }
  return bytes;
}

void DropIfUnused(Memory& memory, uint64_t handle) {
  const auto it = memory.allocations.find(handle);
  if (it->second.handle || it->second.mappings > 0) return;
  close(it->second.fd);
  memory.allocations.erase(it);
}

// Null if the range is not within one mapping.
std::byte* DeviceBytes(Memory& memory, uint64_t address, uint64_t bytes) {
  const auto it = Holding(memory.mappings, address, BytesOfMapping);
  if (it == memory.mappings.end()) return nullptr;
  const uint64_t offset = address - it->first;
  return bytes <= it->second.bytes - offset ? it->second.data + offset : nullptr;
}

// Whether any of the range is a device's address.
bool TouchesReservation(Memory& memory, uint64_t address, uint64_t bytes) {
  const auto next = memory.reservations.lower_bound(address);
  if (next != memory.reservations.end() && next->first < address + bytes) return true;
  return Holding(memory.reservations, address, BytesOf) != memory.reservations.end();
}

}  // namespace

Place PlaceOf(uint64_t address, uint64_t bytes, bool for_writing) {
  Memory& memory = TheMemory();
  const std::shared_lock lock(memory.mutex);
  if (address == 0) return Place::kBad;
  if (TouchesReservation(memory, address, bytes)) {
    if (DeviceBytes(memory, address, bytes) == nullptr) return Place::kBad;
    const Mapping& mapping = Holding(memory.mappings, address, BytesOfMapping)->second;
    return (for_writing ? mapping.writable : mapping.readable) ? Place::kDevice : Place::kBad;
  }
  const auto piece = Holding(memory.registered, address, BytesOf);
  if (piece != memory.registered.end()) {
    return address + bytes <= piece->first + piece->second ? Place::kPinned : Place::kBad;
  }
  const auto next = memory.registered.lower_bound(address);
  const bool touches = next != memory.registered.end() && next->first < address + bytes;
  return touches ? Place::kBad : Place::kPageable;
}

bool CopyBytes(uint64_t target, uint64_t source, uint64_t bytes) {
  Memory& memory = TheMemory();
  const std::shared_lock lock(memory.mutex);
  const auto bytes_at = [&](uint64_t address) {
    return TouchesReservation(memory, address, bytes) ? DeviceBytes(memory, address, bytes)
                                                      : reinterpret_cast<std::byte*>(address);
  };
  std::byte* const to = bytes_at(target);
  const std::byte* const from = bytes_at(source);
  if (to == nullptr || from == nullptr) return false;
  std::memcpy(to, from, bytes);
  return true;
}

void FillUse(FakeCudaUse& use) {
  Memory& memory = TheMemory();
  const std::shared_lock lock(memory.mutex);
  for (const auto& [handle, allocation] : memory.allocations) {
    use.allocated_bytes += allocation.bytes;  // Including imported ones.
  }
  for (const auto& [address, mapping] : memory.mappings) use.mapped_bytes += mapping.bytes;
  for (const auto& [address, bytes] : memory.reservations) use.reserved_bytes += bytes;
  for (const auto& [address, bytes] : memory.registered) use.registered_bytes += bytes;
}

}  // namespace fake_cuda

using fake_cuda::TheMemory;

extern "C" {

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemGetInfo");
  const std::shared_lock lock(TheMemory().mutex);
  *total_bytes = fake_cuda::GetSettings().memory_bytes;
  *free_bytes = *total_bytes - fake_cuda::AllocatedBytes(TheMemory());
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  FAKE_CUDA_ENTER("cuMemGetAllocationGranularity");
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *granularity = fake_cuda::kGranule;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  FAKE_CUDA_ENTER("cuMemCreate");
  if (bytes == 0 || bytes % fake_cuda::kGranule != 0 || flags != 0 ||
      properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::unique_lock lock(TheMemory().mutex);
  const uint64_t taken = fake_cuda::AllocatedBytes(TheMemory());
  if (taken + bytes > fake_cuda::GetSettings().memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const int fd = memfd_create(fake_cuda::kFileName, MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = ++TheMemory().last_handle;
  TheMemory().allocations[*handle] = {.fd = fd, .bytes = bytes};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_CUDA_ENTER("cuMemRelease");
  const std::unique_lock lock(TheMemory().mutex);
  const auto it = TheMemory().allocations.find(handle);
  if (it == TheMemory().allocations.end() || !it->second.handle) return CUDA_ERROR_INVALID_VALUE;
  it->second.handle = false;
  fake_cuda::DropIfUnused(TheMemory(), handle);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_CUDA_ENTER("cuMemExportToShareableHandle");
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::shared_lock lock(TheMemory().mutex);
  const auto it = TheMemory().allocations.find(handle);
  if (it == TheMemory().allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(shareable) = fcntl(it->second.fd, F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  FAKE_CUDA_ENTER("cuMemImportFromShareableHandle");
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  const int fd = static_cast<int>(reinterpret_cast<uintptr_t>(shareable));
  char name[256] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  struct stat info;
  if (readlink(link.c_str(), name, sizeof(name) - 1) < 0 || fstat(fd, &info) != 0 ||
      std::strstr(name, fake_cuda::kFileName) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::unique_lock lock(TheMemory().mutex);
  *handle = ++TheMemory().last_handle;
  TheMemory().allocations[*handle] = {.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
                                      .bytes = static_cast<uint64_t>(info.st_size),
                                      .imported = true};
  return CUDA_SUCCESS;
}

// Without access: a program that reads or writes a device address directly ends there.
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long flags) {
  FAKE_CUDA_ENTER("cuMemAddressReserve");
  if (bytes == 0 || bytes % fake_cuda::kGranule != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const place =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(place);
  const std::unique_lock lock(TheMemory().mutex);
  TheMemory().reservations[*address] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  FAKE_CUDA_ENTER("cuMemAddressFree");
  const std::unique_lock lock(TheMemory().mutex);
  const auto it = TheMemory().reservations.find(address);
  if (it == TheMemory().reservations.end() || it->second != bytes ||
      TheMemory().mappings.contains(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(reinterpret_cast<void*>(address), bytes);
  TheMemory().reservations.erase(it);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  FAKE_CUDA_ENTER("cuMemMap");
  const std::unique_lock lock(TheMemory().mutex);
  const auto reservation = TheMemory().reservations.find(address);
  const auto allocation = TheMemory().allocations.find(handle);
  if (offset != 0 || flags != 0 || reservation == TheMemory().reservations.end() ||
      allocation == TheMemory().allocations.end() || bytes > reservation->second ||
      bytes > allocation->second.bytes || TheMemory().mappings.contains(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, allocation->second.fd, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OPERATING_SYSTEM;
  TheMemory().mappings[address] = {
      .bytes = bytes, .allocation = handle, .data = static_cast<std::byte*>(data)};
  ++allocation->second.mappings;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  FAKE_CUDA_ENTER("cuMemUnmap");
  fake_cuda::FinishNullStream();  // The real driver waits too: work that it has begun uses these
                                  // bytes.
  const std::unique_lock lock(TheMemory().mutex);
  const auto it = TheMemory().mappings.find(address);
  if (it == TheMemory().mappings.end() || it->second.bytes != bytes)
    return CUDA_ERROR_INVALID_VALUE;
  munmap(it->second.data, bytes);
  const uint64_t handle = it->second.allocation;
  TheMemory().mappings.erase(it);
  --TheMemory().allocations[handle].mappings;
  fake_cuda::DropIfUnused(TheMemory(), handle);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  FAKE_CUDA_ENTER("cuMemSetAccess");
  const std::unique_lock lock(TheMemory().mutex);
  const auto it = TheMemory().mappings.find(address);
  if (it == TheMemory().mappings.end() || it->second.bytes != bytes || count != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  it->second.readable = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  it->second.writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* data, size_t bytes, unsigned) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemHostRegister");
  const auto address = reinterpret_cast<uint64_t>(data);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (fake_cuda::PlaceOf(address, bytes, true) != fake_cuda::Place::kPageable) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  const std::unique_lock lock(TheMemory().mutex);
  uint64_t taken = 0;
  for (const auto& [begin, size] : TheMemory().registered) taken += size;
  if (taken + bytes > fake_cuda::GetSettings().pinned_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  TheMemory().registered[address] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* data) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemHostUnregister");
  const std::unique_lock lock(TheMemory().mutex);
  const bool known = TheMemory().registered.erase(reinterpret_cast<uint64_t>(data)) == 1;
  return known ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t bytes) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemsetD8");
  if (fake_cuda::PlaceOf(address, bytes, true) != fake_cuda::Place::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Returns before the device has begun the work.
  fake_cuda::PushToNullStream([=] {
    const std::shared_lock lock(TheMemory().mutex);
    std::byte* const data = fake_cuda::DeviceBytes(TheMemory(), address, bytes);
    if (data == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memset(data, value, bytes);
    return CUDA_SUCCESS;
  });
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr target, const void* source, size_t bytes) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpyHtoD");
  const auto from = reinterpret_cast<uint64_t>(source);
  const fake_cuda::Place place = fake_cuda::PlaceOf(from, bytes, false);
  if (fake_cuda::PlaceOf(target, bytes, true) != fake_cuda::Place::kDevice ||
      place == fake_cuda::Place::kDevice || place == fake_cuda::Place::kBad) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Bytes of pageable memory are taken at once. They reach the device after the return.
  auto staged = std::make_shared<std::vector<std::byte>>();
  if (place == fake_cuda::Place::kPageable) {
    const auto* const bytes_from = static_cast<const std::byte*>(source);
    staged->assign(bytes_from, bytes_from + bytes);
  }
  fake_cuda::PushToNullStream([=] {
    const uint64_t begin = staged->empty() ? from : reinterpret_cast<uint64_t>(staged->data());
    return fake_cuda::CopyBytes(target, begin, bytes) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  });
  if (place == fake_cuda::Place::kPinned) fake_cuda::FinishNullStream();
  return fake_cuda::Lost();
}

CUresult cuMemcpyDtoH(void* target, CUdeviceptr source, size_t bytes) {
  FAKE_CUDA_ENTER_CONTEXT("cuMemcpyDtoH");
  const auto to = reinterpret_cast<uint64_t>(target);
  const fake_cuda::Place place = fake_cuda::PlaceOf(to, bytes, true);
  if (fake_cuda::PlaceOf(source, bytes, false) != fake_cuda::Place::kDevice ||
      place == fake_cuda::Place::kDevice || place == fake_cuda::Place::kBad) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake_cuda::PushToNullStream([=] {
    return fake_cuda::CopyBytes(to, source, bytes) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  });
  fake_cuda::FinishNullStream();
  return fake_cuda::Lost();
}

}  // extern "C"
