#include "pools/cuda/context.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"

namespace pagoda::cuda {

const Driver& TheDriver() {
  const absl::StatusOr<const Driver*> driver = GetDriver();
  PAGODA_CHECK(driver.ok(), "CUDA's driver does not go away");
  return **driver;
}

absl::StatusOr<uint64_t> RetainContext(int device) {
  const absl::StatusOr<const Driver*> found = GetDriver();
  if (!found.ok()) return found.status();
  const Driver& driver = **found;
  CUdevice handle = 0;
  if (driver.cuDeviceGet(&handle, device) != CUDA_SUCCESS) {
    int devices = 0;
    driver.cuDeviceGetCount(&devices);
    return MakeError(Reason::kInvalidArgument, absl::StrCat("there is no CUDA device ", device,
                                                            "; this process sees ", devices));
  }
  int exports = 0;
  absl::Status status = driver.Check(
      "cuDeviceGetAttribute",
      driver.cuDeviceGetAttribute(
          &exports, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, handle));
  if (!status.ok()) return status;
  if (exports == 0) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("CUDA device ", device, " does not export memory"));
  }
  CUcontext context = nullptr;
  status =
      driver.Check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&context, handle));
  if (!status.ok()) return status;
  return reinterpret_cast<uint64_t>(context);
}

// The driver's documentation of cuDeviceGet says that a device's handle is its index.
void ReleaseContext(int device) { TheDriver().cuDevicePrimaryCtxRelease(device); }

Current::Current(uint64_t context)
    : status_(TheDriver().Check(
          "cuCtxPushCurrent", TheDriver().cuCtxPushCurrent(reinterpret_cast<CUcontext>(context)))) {
}

Current::~Current() {
  CUcontext ignored;
  if (status_.ok()) TheDriver().cuCtxPopCurrent(&ignored);
}

}  // namespace pagoda::cuda
