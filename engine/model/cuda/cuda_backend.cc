#include "engine/model/cuda/cuda_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/cuda/cublaslt_library.h"
#include "engine/model/cuda/cublaslt_products.h"
#include "engine/model/cuda/device_backend.h"
#include "engine/model/cuda/runtime_device.h"
#include "kernels/cuda/tensor_map.h"

namespace pagoda {

bool HasCudaBackend() { return true; }

absl::Status CheckCudaBackend(int device) {
  if (absl::Status opened = cuda::OpenRuntimeDevice(device).status(); !opened.ok()) return opened;
  return cuda::GetCublasLt().status();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  absl::StatusOr<std::unique_ptr<cuda::ComputeDevice>> device =
      cuda::OpenRuntimeDevice(options.device);
  if (!device.ok()) return device.status();
  if (options.attention == GpuAttention::kHopper) {
    kernels::cuda::HopperDevice hopper;
    if (absl::Status found = kernels::cuda::FindHopper(&hopper); !found.ok()) return found;
    if (!hopper.present) {
      return absl::FailedPreconditionError(
          absl::StrCat("gpu_attention is hopper, and ", (*device)->description(),
                       ", is not of compute capability 9.0; say auto or sm80"));
    }
  }
  absl::StatusOr<std::unique_ptr<cuda::DeviceProducts>> products =
      cuda::MakeCublasLtProducts(device->get());
  if (!products.ok()) return products.status();
  return cuda::MakeDeviceBackend(*std::move(device), *std::move(products), options.compute,
                                 options.attention);
}

}  // namespace pagoda
