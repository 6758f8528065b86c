// The GPU backend of a build without nvcc or without cuBLASLt's headers.
#include "base/error.h"
#include "engine/model/cuda/cuda_backend.h"

namespace pagoda {

bool HasCudaBackend() { return false; }

absl::Status CheckCudaBackend(int) {
  return MakeError(Reason::kInvalidArgument,
                   "this build's engine has no backend cuda (PAGODA_CUDA was OFF, or no nvcc or "
                   "cublasLt.h was found); supported: cpu");
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  return CheckCudaBackend(options.device);
}

absl::StatusOr<GpuSelfTestReport> TestCudaKernels(const GpuSelfTestRequest& request,
                                                  const GpuTestObserver&) {
  return CheckCudaBackend(request.device);
}

}  // namespace pagoda
