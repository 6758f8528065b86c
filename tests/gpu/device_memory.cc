// Device memory of a GPU, for the tests.
#include "tests/kernels/cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "tests/gpu/cuda_check.h"

namespace pagoda::kernels::cuda {

std::string WhyNoDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return absl::StrCat("no device: ", cudaGetErrorName(error), ": ", cudaGetErrorString(error));
  }
  if (count == 0) return "no device";
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return "no device that answers";
  if (properties.major < 8) return absl::StrCat("the device is of sm_", properties.major, "x");
  return "";
}

bool IsEmulated() { return false; }

std::byte* AllocateDevice(uint64_t bytes) {
  void* memory = nullptr;
  PAGODA_CUDA_CHECK(cudaMalloc(&memory, bytes));
  return static_cast<std::byte*>(memory);
}

void FreeDevice(std::byte* memory) { PAGODA_CUDA_CHECK(cudaFree(memory)); }

void CopyToDevice(void* device, const void* host, uint64_t bytes) {
  if (bytes > 0) PAGODA_CUDA_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}
void CopyFromDevice(void* host, const void* device, uint64_t bytes) {
  if (bytes > 0) PAGODA_CUDA_CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}
void FinishDevice() { PAGODA_CUDA_CHECK(cudaDeviceSynchronize()); }

void ShuffleSchedule(uint32_t) {}

}  // namespace pagoda::kernels::cuda
