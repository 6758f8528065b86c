// What the GPU can do at most, measured by kernels that do nothing else.
#ifndef PAGODA_TESTS_GPU_YARDSTICKS_H_
#define PAGODA_TESTS_GPU_YARDSTICKS_H_

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace pagoda::kernels::cuda {

// Reads the memory, 16 bytes a thread at a time, and writes a word where it is all zeros, which
// nobody can know before. 0, or CUDA's error.
int LaunchRead(const void* memory, uint64_t bytes, uint32_t* sink, Stream stream);

// Products of bf16 matrices by mma.sync out of registers alone: what kernels without wgmma have as
// their ceiling. Floating point operations of a launch on so many multiprocessors.
uint64_t ProductOperations(uint32_t multiprocessors);
int LaunchProducts(uint32_t multiprocessors, float* sink, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_TESTS_GPU_YARDSTICKS_H_
