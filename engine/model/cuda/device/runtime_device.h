#ifndef PAGODA_ENGINE_MODEL_CUDA_DEVICE_RUNTIME_DEVICE_H_
#define PAGODA_ENGINE_MODEL_CUDA_DEVICE_RUNTIME_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/cuda/device/compute_device.h"

namespace pagoda::cuda {

// A GPU by CUDA's runtime, which is linked in and finds the driver at its first call. `device` is
// numbered as in this process. Errors: UNAVAILABLE (no driver or no device), INVALID_ARGUMENT (no
// device of that index), FAILED_PRECONDITION (older than sm_80), INTERNAL.
absl::StatusOr<std::unique_ptr<ComputeDevice>> OpenRuntimeDevice(int device);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_DEVICE_RUNTIME_DEVICE_H_
