// The backend for NVIDIA GPUs, of sm_80 and newer: products by cuBLASLt, everything else by kernels
// of the project's own. A build without nvcc has these functions too, and they say so.
#ifndef PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/choices.h"
#include "engine/model/backend.h"

namespace pagoda {

struct CudaBackendOptions {
  int device = 0;  // As this process counts.
  ComputeType compute = ComputeType::kAuto;
  GpuAttention attention = GpuAttention::kAuto;
};

// Whether this build has the backend, on whatever machine it runs.
bool HasCudaBackend();

// OK where MakeCudaBackend would find what it needs. Errors: those of MakeCudaBackend. Makes the
// device's context where this process has none, which takes a part of a second.
absl::Status CheckCudaBackend(int device);

// Pools and weights are in the device's memory. `compute`: kAuto keeps fp16 and bf16 matrices as
// they are and takes everything else as fp32; a product's inputs are rounded to its weights' type,
// sums are fp32, and products of fp32 are exact ones, without TF32.
// Errors: INVALID_ARGUMENT (this build has no such backend, or there is no device of that index),
// UNAVAILABLE (no driver or no device), FAILED_PRECONDITION (no cuBLASLt, a device older than
// sm_80, attention kHopper on another device than of compute capability 9.0), INTERNAL (another
// failure of CUDA's).
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_
