// The graph's operations on a device: what MakeCudaBackend makes of CUDA's runtime and cuBLASLt,
// and the tests of an emulation and plain loops.
#ifndef PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_

#include <memory>

#include "engine/choices.h"
#include "engine/model/backend.h"
#include "engine/model/cuda/compute_device.h"
#include "engine/model/cuda/device_products.h"
#include "engine/model/gpu_report.h"

namespace pagoda::cuda {

// KV pools, weights and activations are in the device's memory, and everything is in the order of
// its one stream; the logits come to pinned memory. Over pools of 16 bits queries are rounded to
// the pool's type, so that attention runs on tensor cores. `compute` and `attention`:
// CudaBackendOptions. The device runs the kernels of `attention`.
std::unique_ptr<Backend> MakeDeviceBackend(std::unique_ptr<ComputeDevice> device,
                                           std::unique_ptr<DeviceProducts> products,
                                           ComputeType compute,
                                           const AttentionChoice& attention = {});

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_
