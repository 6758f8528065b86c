// The graph's operations on a device. MakeCudaBackend combines it with CUDA's runtime and cuBLASLt,
// the tests with an emulation and plain loops.
#ifndef PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_

#include <memory>

#include "base/engine_options.h"
#include "engine/model/backend/backend.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/model/cuda/device/compute_device.h"
#include "engine/model/cuda/products/device_products.h"
#include "engine/words/gpu_graphs.h"

namespace pagoda::cuda {

// KV pools, weights and activations are in the device's memory. Everything is in the order of its
// one stream. The logits are copied to pinned memory. Over 16-bit pools, queries are rounded to the
// pool's type, so that attention runs on tensor cores. `compute` and the following: see
// CudaBackendOptions. REQUIRES: the device runs the kernels of `attention` and `fused`.
std::unique_ptr<Backend> MakeDeviceBackend(std::unique_ptr<ComputeDevice> device,
                                           std::unique_ptr<DeviceProducts> products,
                                           ComputeType compute,
                                           const AttentionChoice& attention = {},
                                           const FusedChoice& fused = {},
                                           GpuGraphs graphs = GpuGraphs::kOff);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_DEVICE_BACKEND_H_
