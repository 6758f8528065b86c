// The backend for NVIDIA GPUs, of sm_80 and newer: products by cuBLASLt, everything else by kernels
// of the project's own. A build without nvcc has these functions too, and they say so.
#ifndef PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/choices.h"
#include "engine/model/backend.h"
#include "engine/model/gpu_report.h"
#include "kernels/types.h"

namespace pagoda {

struct CudaBackendOptions {
  int device = 0;  // As this process counts.
  ComputeType compute = ComputeType::kAuto;
  AttentionChoice attention;  // Of GpuSelfTestReport::attention.
};

// What an engine will ask of a GPU's kernels.
struct GpuSelfTestRequest {
  int device = 0;      // As this process counts.
  ModelConfig config;  // One that LoadModelConfig has made.
  kernels::ElementType kv_type = kernels::ElementType::kFloat32;
  uint32_t tokens_per_block = 0;  // At least 1.
  ComputeType compute = ComputeType::kAuto;
  // kAuto tests every family of attention; another choice that family alone.
  GpuAttention attention = GpuAttention::kAuto;
  // What is known already is not tested again: it is in the report as it is here.
  std::vector<GpuKernelResult> known;
  // KV that attention is timed over, in device memory while the test runs.
  uint64_t timing_bytes = uint64_t{64} << 20;
};

// Hears of each family twice: with kRunning before it is tested, and with its outcome.
using GpuTestObserver = std::function<void(const GpuKernelResult&)>;

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
// sm_80), INTERNAL (another failure of CUDA's).
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

// Tests the kernels on the device, in this process (cuda/self_test.h). A library or family that
// fails is in the report. Takes about a second, the device's context included. Errors: those of
// MakeCudaBackend but for cuBLASLt's.
absl::StatusOr<GpuSelfTestReport> TestCudaKernels(const GpuSelfTestRequest& request,
                                                  const GpuTestObserver& observer);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_
