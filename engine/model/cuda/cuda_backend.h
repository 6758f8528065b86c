// The backend for NVIDIA GPUs of sm_80 and newer: products by cuBLASLt, everything else by the
// project's own kernels. A build without nvcc has these functions too; they return an error.
#ifndef PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/engine_options.h"
#include "engine/model/backend/backend.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/model/cuda/self_test/self_test_request.h"
#include "engine/words/gpu_graphs.h"

namespace pagoda {

struct CudaBackendOptions {
  int device = 0;  // Numbered as in this process.
  ComputeType compute = ComputeType::kAuto;
  AttentionChoice attention;  // From GpuSelfTestReport::attention.
  FusedChoice fused;          // From GpuSelfTestReport::fused.
  // kOff unless GpuSelfTestReport::graphs.
  GpuGraphs graphs = GpuGraphs::kOff;
};

// Whether this build has the backend, whatever the machine has.
bool HasCudaBackend();

// OK if MakeCudaBackend would find everything that it needs. Errors: those of MakeCudaBackend.
// Creates the device's context if this process has none, which takes a fraction of a second.
absl::Status CheckCudaBackend(int device);

// Pools and weights are in the device's memory. `compute`: kAuto keeps fp16 and bf16 matrices as
// they are and reads everything else as fp32. A product's inputs are rounded to its weights' type;
// sums are fp32. Products of fp32 are exact, without TF32. Errors: INVALID_ARGUMENT (this build has
// no such backend, or there is no device of that index), UNAVAILABLE (no driver or no device),
// FAILED_PRECONDITION (no cuBLASLt, or a device older than sm_80), INTERNAL (other failures of
// CUDA).
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

// Tests the kernels on the device, in this process (model/cuda/self_test/self_test.h). The report
// has failures of the library or a family. Takes about a second, including the device's context.
// Errors: those of MakeCudaBackend, except cuBLASLt's.
absl::StatusOr<GpuSelfTestReport> TestCudaKernels(const GpuSelfTestRequest& request,
                                                  const GpuTestObserver& observer);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CUDA_CUDA_BACKEND_H_
