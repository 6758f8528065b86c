// Device memory of the emulation: host memory. Each array ends at a page without access.
#include "tests/kernels/cuda/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/kernels/cuda_emulation/emulator.h"

namespace pagoda::kernels::cuda {
namespace {

struct Mapping {
  void* start;
  uint64_t bytes;
};

std::map<std::byte*, Mapping>& Mappings() {
  static std::map<std::byte*, Mapping> mappings;
  return mappings;
}

}  // namespace

std::string WhyNoDevice() { return ""; }
bool IsEmulated() { return true; }

std::byte* AllocateDevice(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t padded = (bytes + 15) / 16 * 16;
  const uint64_t body = (padded + page - 1) / page * page;
  void* start =
      mmap(nullptr, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) std::abort();
  std::byte* first_page = static_cast<std::byte*>(start) + page;
  if (mprotect(first_page, body, PROT_READ | PROT_WRITE) != 0) std::abort();
  std::byte* memory = first_page + (body - padded);
  Mappings()[memory] = {start, body + 2 * page};
  return memory;
}

void FreeDevice(std::byte* memory) {
  const auto mapping = Mappings().find(memory);
  if (mapping == Mappings().end()) std::abort();
  munmap(mapping->second.start, mapping->second.bytes);
  Mappings().erase(mapping);
}

void CopyToDevice(void* device, const void* host, uint64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}
void CopyFromDevice(void* host, const void* device, uint64_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}
void FinishDevice() {}

void ShuffleSchedule(uint32_t seed) { emulation::SetSchedule(seed); }

}  // namespace pagoda::kernels::cuda
