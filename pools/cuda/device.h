// This machine's CUDA devices. In a build without CUDA these functions return UNAVAILABLE.
#ifndef PAGODA_POOLS_CUDA_DEVICE_H_
#define PAGODA_POOLS_CUDA_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "pools/memory/memory_place.h"

namespace pagoda::cuda {

struct DeviceInfo {
  MemoryPlace place;
  std::string name;  // The driver's name: "NVIDIA H100 80GB HBM3".
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// Describes a device that pools can lie on, and its memory that is free now. Other processes may
// take that memory first. Errors: UNAVAILABLE (this build has no CUDA, or there is no driver or no
// device), INVALID_ARGUMENT (no device of that index, or one whose memory cannot be exported to
// other processes), INTERNAL for other failures of the driver. Thread-safe. The first call of a
// process makes the device's context, which takes a fraction of a second.
absl::StatusOr<DeviceInfo> DescribeDevice(int device);

// The device's index in this process. Errors: UNAVAILABLE as above, and if this process does not
// see the device (CUDA_VISIBLE_DEVICES). Thread-safe.
absl::StatusOr<int> FindDevice(const DeviceUuid& uuid);

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_DEVICE_H_
