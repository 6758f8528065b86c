#include "pools/cuda/device.h"

#include <algorithm>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "pools/cuda/context.h"

namespace pagoda::cuda {
namespace {

absl::StatusOr<DeviceUuid> UuidOf(const Driver& driver, int device) {
  CUuuid uuid = {};
  absl::Status status = driver.Check("cuDeviceGetUuid", driver.cuDeviceGetUuid(&uuid, device));
  if (!status.ok()) return status;
  DeviceUuid result = {};
  std::copy(std::begin(uuid.bytes), std::end(uuid.bytes), result.begin());
  return result;
}

}  // namespace

absl::StatusOr<DeviceInfo> DescribeDevice(int device) {
  const absl::StatusOr<uint64_t> context = RetainContext(device);
  if (!context.ok()) return context.status();
  const absl::Cleanup release = [device] { ReleaseContext(device); };
  const Driver& driver = TheDriver();
  const absl::StatusOr<DeviceUuid> uuid = UuidOf(driver, device);
  if (!uuid.ok()) return uuid.status();
  char name[256] = {};
  absl::Status status =
      driver.Check("cuDeviceGetName", driver.cuDeviceGetName(name, sizeof(name) - 1, device));
  if (!status.ok()) return status;
  const Current current(*context);
  if (!current.status().ok()) return current.status();
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  status = driver.Check("cuMemGetInfo", driver.cuMemGetInfo(&free_bytes, &total_bytes));
  if (!status.ok()) return status;
  return DeviceInfo{.place = {.kind = MemoryKind::kCuda, .device = device, .uuid = *uuid},
                    .name = name,
                    .free_bytes = free_bytes,
                    .total_bytes = total_bytes};
}

absl::StatusOr<int> FindDevice(const DeviceUuid& uuid) {
  const absl::StatusOr<const Driver*> driver = GetDriver();
  if (!driver.ok()) return driver.status();
  int devices = 0;
  absl::Status status = (*driver)->Check("cuDeviceGetCount", (*driver)->cuDeviceGetCount(&devices));
  if (!status.ok()) return status;
  for (int device = 0; device < devices; ++device) {
    const absl::StatusOr<DeviceUuid> other = UuidOf(**driver, device);
    if (!other.ok()) return other.status();
    if (*other == uuid) return device;
  }
  return absl::UnavailableError("this process does not see that device (CUDA_VISIBLE_DEVICES)");
}

}  // namespace pagoda::cuda
