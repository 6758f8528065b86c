// The few calls of CUDA's runtime that host code here makes.
#ifndef PAGODA_KERNELS_CUDA_RUNTIME_H_
#define PAGODA_KERNELS_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/stream.h"

namespace pagoda::kernels::cuda {

// OK for 0; else Internal, with CUDA's name for the error.
absl::Status StatusOf(const char* what, int error);

struct MemoryCopy {
  void* target = nullptr;
  const void* source = nullptr;
  uint64_t bytes = 0;
};

// In the stream's order, between memories of any kind; each where its pointers say. Host memory
// stays as it is until the stream has got there. Errors: Internal.
absl::Status CopyMemory(absl::Span<const MemoryCopy> copies, Stream stream);

// Until what is in the stream has ended. Errors: Internal, also for a stream that is captured.
absl::Status WaitForStream(Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_RUNTIME_H_
