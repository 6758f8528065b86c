#include "kernels/cuda/device/runtime.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "absl/strings/str_cat.h"

namespace pagoda::kernels::cuda {
namespace {

// The fewest copies for which a batch is worth its arrays.
[[maybe_unused]] constexpr size_t kBatchedCopies = 4;

#if CUDART_VERSION >= 13000
// One driver call for all copies. Not every driver has it, and not on the default stream.
cudaError_t CopyBatch(absl::Span<const MemoryCopy> copies, Stream stream) {
  std::vector<void*> targets;
  std::vector<const void*> sources;
  std::vector<size_t> bytes;
  for (const MemoryCopy& copy : copies) {
    targets.push_back(copy.target);
    sources.push_back(copy.source);
    bytes.push_back(copy.bytes);
  }
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first = 0;
  return cudaMemcpyBatchAsync(targets.data(), sources.data(), bytes.data(), copies.size(),
                              &attributes, &first, 1, stream);
}
#endif

}  // namespace

absl::Status StatusOf(const char* what, int error) {
  if (error == cudaSuccess) return absl::OkStatus();
  const auto code = static_cast<cudaError_t>(error);
  return absl::InternalError(
      absl::StrCat(what, ": ", cudaGetErrorName(code), ": ", cudaGetErrorString(code)));
}

absl::Status CopyMemory(absl::Span<const MemoryCopy> copies, Stream stream) {
#if CUDART_VERSION >= 13000
  if (stream != nullptr && copies.size() >= kBatchedCopies) {
    const cudaError_t error = CopyBatch(copies, stream);
    if (error != cudaErrorNotSupported && error != cudaErrorCallRequiresNewerDriver) {
      return StatusOf("cudaMemcpyBatchAsync", error);
    }
    cudaGetLastError();  // Clears the error.
  }
#endif
  for (const MemoryCopy& copy : copies) {
    const cudaError_t error =
        cudaMemcpyAsync(copy.target, copy.source, copy.bytes, cudaMemcpyDefault, stream);
    if (error != cudaSuccess) return StatusOf("cudaMemcpyAsync", error);
  }
  return absl::OkStatus();
}

absl::Status WaitForStream(Stream stream) {
  return StatusOf("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

}  // namespace pagoda::kernels::cuda
