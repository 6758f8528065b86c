// The location of memory: the host or a device.
#ifndef PAGODA_POOLS_MEMORY_MEMORY_PLACE_H_
#define PAGODA_POOLS_MEMORY_MEMORY_PLACE_H_

#include <array>
#include <cstdint>
#include <string>

namespace pagoda {

enum class MemoryKind : uint8_t {
  kHost,  // POSIX shared memory.
  kCuda,  // The memory of a CUDA device.
};

// A device's identity. Its index differs between processes that have a different
// CUDA_VISIBLE_DEVICES.
using DeviceUuid = std::array<uint8_t, 16>;

struct MemoryPlace {
  MemoryKind kind = MemoryKind::kHost;
  // Device memory only: the device's index in the process that owns the memory, and its identity.
  int device = 0;
  DeviceUuid uuid = {};
  friend bool operator==(const MemoryPlace&, const MemoryPlace&) = default;
};

// "host", or "cuda:0".
inline std::string PlaceName(const MemoryPlace& place) {
  return place.kind == MemoryKind::kHost ? "host" : "cuda:" + std::to_string(place.device);
}

}  // namespace pagoda

#endif  // PAGODA_POOLS_MEMORY_MEMORY_PLACE_H_
