#ifndef PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_DEVICE_PRODUCTS_H_
#define PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_DEVICE_PRODUCTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/types.h"

namespace pagoda::cuda {

// output[r][o] = bias[o] + sum over i of input[r][i] * weights[o][i], with sums in fp32. All in
// device memory.
struct DeviceProduct {
  // The type of input and weights: fp16, bf16, or fp32, whose products are full fp32 without fewer
  // digits.
  kernels::ElementType type = kernels::ElementType::kFloat32;
  uint64_t rows = 0;
  uint64_t inputs = 0;
  uint64_t outputs = 0;
  const void* input = nullptr;    // [rows][input_stride]
  uint64_t input_stride = 0;      // In elements, at least `inputs`.
  const void* weights = nullptr;  // [outputs][inputs]
  const float* bias = nullptr;    // [outputs], or null.
  float* output = nullptr;        // [rows][output_stride], does not overlap the others.
  uint64_t output_stride = 0;     // In elements, at least `outputs`.
};

// Multiplies matrices on a device. Thread-compatible.
class DeviceProducts {
 public:
  virtual ~DeviceProducts() = default;

  // For people: "cuBLASLt 13.0.2".
  virtual std::string name() const = 0;

  // In the stream's order; asynchronous. REQUIRES: no size is 0. Errors: INTERNAL.
  virtual absl::Status Multiply(const DeviceProduct& product, kernels::cuda::Stream stream) = 0;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_DEVICE_PRODUCTS_H_
