#ifndef PAGODA_ENGINE_MODEL_CUDA_CUBLASLT_PRODUCTS_H_
#define PAGODA_ENGINE_MODEL_CUDA_CUBLASLT_PRODUCTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/cuda/compute_device.h"
#include "engine/model/cuda/device_products.h"

namespace pagoda::cuda {

// Products by cuBLASLt on that device, which outlives them. Which of its kernels multiplies depends
// on the sizes, the number of rows among them, so a row's last bits depend on how many rows there
// are. Errors: FAILED_PRECONDITION (no cuBLASLt), OUT_OF_MEMORY (its workspace), INTERNAL.
absl::StatusOr<std::unique_ptr<DeviceProducts>> MakeCublasLtProducts(ComputeDevice* device);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_CUBLASLT_PRODUCTS_H_
