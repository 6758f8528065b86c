#ifndef PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CUBLASLT_PRODUCTS_H_
#define PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CUBLASLT_PRODUCTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/cuda/device/compute_device.h"
#include "engine/model/cuda/products/device_products.h"

namespace pagoda::cuda {

// Products by cuBLASLt on the device, which outlives them. The library chooses a kernel by the
// sizes, including the number of rows, so a row's last bits depend on the number of rows. Errors:
// FAILED_PRECONDITION (no cuBLASLt), OUT_OF_MEMORY (its workspace), INTERNAL.
absl::StatusOr<std::unique_ptr<DeviceProducts>> MakeCublasLtProducts(ComputeDevice* device);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CUBLASLT_PRODUCTS_H_
