// The graph's operations on a device: what MakeCudaBackend makes of CUDA's runtime and cuBLASLt,
// and the tests of an emulation and plain loops.
#ifndef PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_

#include <cstdint>
#include <memory>

#include "engine/choices.h"
#include "engine/model/backend.h"
#include "engine/model/cuda/compute_device.h"
#include "engine/model/cuda/device_products.h"
#include "kernels/cuda/attention.h"

namespace pagoda::cuda {

// The kernels of attention for heads of that size, with items of at most so many rows
// (PlanCapacity::short_rows), where a block has so much shared memory: the fast decode kernel wants
// more than devices such as sm_86 and sm_89 have (kernels/README.md).
kernels::cuda::AttentionKernels KernelsFor(uint32_t head_dim, uint32_t short_rows,
                                           uint32_t block_shared_bytes);

// KV pools, weights and activations are in the device's memory, and everything is in the order of
// its one stream; the logits come to pinned memory. Over pools of 16 bits queries are rounded to
// the pool's type, so that attention runs on tensor cores. `compute`: CudaBackendOptions.
std::unique_ptr<Backend> MakeDeviceBackend(std::unique_ptr<ComputeDevice> device,
                                           std::unique_ptr<DeviceProducts> products,
                                           ComputeType compute);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_
