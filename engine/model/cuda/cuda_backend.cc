#include "engine/model/cuda/cuda_backend.h"

#include <string>
#include <utility>

#include "engine/model/cuda/device/runtime_device.h"
#include "engine/model/cuda/device_backend.h"
#include "engine/model/cuda/products/cublaslt_library.h"
#include "engine/model/cuda/products/cublaslt_products.h"
#include "engine/model/cuda/self_test/self_test.h"

namespace pagoda {
namespace cuda {
namespace {

// Products without a library: each one fails with the reason.
class NoProducts final : public DeviceProducts {
 public:
  explicit NoProducts(absl::Status why) : why_(std::move(why)) {}
  std::string name() const override { return "none"; }
  absl::Status Multiply(const DeviceProduct&, kernels::cuda::Stream) override { return why_; }

 private:
  const absl::Status why_;
};

}  // namespace
}  // namespace cuda

bool HasCudaBackend() { return true; }

absl::Status CheckCudaBackend(int device) {
  if (absl::Status opened = cuda::OpenRuntimeDevice(device).status(); !opened.ok()) return opened;
  return cuda::GetCublasLt().status();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  absl::StatusOr<std::unique_ptr<cuda::ComputeDevice>> device =
      cuda::OpenRuntimeDevice(options.device);
  if (!device.ok()) return device.status();
  absl::StatusOr<std::unique_ptr<cuda::DeviceProducts>> products =
      cuda::MakeCublasLtProducts(device->get());
  if (!products.ok()) return products.status();
  return cuda::MakeDeviceBackend(*std::move(device), *std::move(products), options.compute,
                                 options.attention, options.fused, options.graphs);
}

absl::StatusOr<GpuSelfTestReport> TestCudaKernels(const GpuSelfTestRequest& request,
                                                  const GpuTestObserver& observer) {
  const absl::StatusOr<std::unique_ptr<cuda::ComputeDevice>> device =
      cuda::OpenRuntimeDevice(request.device);
  if (!device.ok()) return device.status();
  absl::StatusOr<std::unique_ptr<cuda::DeviceProducts>> products =
      cuda::MakeCublasLtProducts(device->get());
  cuda::NoProducts none(products.status());
  return cuda::RunSelfTest(**device, products.ok() ? **products : none, request, observer);
}

}  // namespace pagoda
