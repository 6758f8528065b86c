// What can be known of this machine's CUDA devices. A build without CUDA has these functions too,
// and they say so.
#ifndef PAGODA_POOLS_CUDA_DEVICE_H_
#define PAGODA_POOLS_CUDA_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "pools/memory_place.h"

namespace pagoda::cuda {

struct DeviceInfo {
  MemoryPlace place;
  std::string name;  // The driver's: "NVIDIA H100 80GB HBM3".
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// A device that pools can lie on, with what is free there now. Others may take that first.
// Errors: UNAVAILABLE (this build has no CUDA, or there is no driver or no device),
// INVALID_ARGUMENT (no device of that index, or one whose memory cannot be given to other
// processes), INTERNAL for other failures of the driver. Thread-safe. Makes the device's context
// where this process has none, which takes a part of a second.
absl::StatusOr<DeviceInfo> DescribeDevice(int device);

// The index that a device has in this process. Errors: UNAVAILABLE as above, and where this process
// does not see the device (CUDA_VISIBLE_DEVICES). Thread-safe.
absl::StatusOr<int> FindDevice(const DeviceUuid& uuid);

}  // namespace pagoda::cuda

#endif  // PAGODA_POOLS_CUDA_DEVICE_H_
