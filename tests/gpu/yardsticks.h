// The maximum speed of the GPU, measured by kernels that do nothing else.
#ifndef PAGODA_TESTS_GPU_YARDSTICKS_H_
#define PAGODA_TESTS_GPU_YARDSTICKS_H_

#include <cstdint>

#include "kernels/cuda/device/stream.h"

namespace pagoda::kernels::cuda {

// Reads the memory, 16 bytes per thread at a time. Writes a word if all bytes are zeros, so that
// the compiler cannot remove the reads. Returns 0 or CUDA's error.
int LaunchRead(const void* memory, uint64_t bytes, uint32_t* sink, Stream stream);

// Products of bf16 matrices by mma.sync from registers only: the ceiling of kernels without wgmma.
// Returns the floating point operations of a launch on `multiprocessors` multiprocessors.
uint64_t ProductOperations(uint32_t multiprocessors);
int LaunchProducts(uint32_t multiprocessors, float* sink, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_GPU_YARDSTICKS_H_
