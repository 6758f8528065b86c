#include "engine/model/cuda/cuda_backend.h"

#include <utility>

#include "engine/model/cuda/cublaslt_library.h"
#include "engine/model/cuda/cublaslt_products.h"
#include "engine/model/cuda/device_backend.h"
#include "engine/model/cuda/runtime_device.h"

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
  absl::StatusOr<std::unique_ptr<cuda::DeviceProducts>> products =
      cuda::MakeCublasLtProducts(device->get());
  if (!products.ok()) return products.status();
  return cuda::MakeDeviceBackend(*std::move(device), *std::move(products), options.compute);
}

}  // namespace pagoda
