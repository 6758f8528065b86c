// The calls of the CUDA runtime that host code of this folder makes.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_RUNTIME_H_
#define PAGODA_KERNELS_CUDA_DEVICE_RUNTIME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/device/stream.h"

namespace pagoda::kernels::cuda {

// OK for 0; else Internal, with CUDA's name for the error.
absl::Status StatusOf(const char* what, int error);

struct MemoryCopy {
  void* target = nullptr;
  const void* source = nullptr;
  uint64_t bytes = 0;
};

// Copies in the stream's order, between memories of any kind. Host memory must not change until the
// stream has made the copy. Errors: Internal.
absl::Status CopyMemory(absl::Span<const MemoryCopy> copies, Stream stream);

// Waits until the stream's work has ended. Errors: Internal, also if the stream is being captured.
absl::Status WaitForStream(Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_RUNTIME_H_
