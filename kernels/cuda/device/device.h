// The GPU features that the kernels use: a thread's indices, its block's shared memory, exchanges
// within a warp, products of the tensor cores, and background copies. Under nvcc each one is one or
// a few PTX instructions (device_ptx.h). Under a C++ compiler, PAGODA_CUDA_EMULATION names a header
// that does the same on the host, so that the kernels' indexing, masks and barriers are tested
// without a GPU: tests/kernels/cuda_emulation/.
//
// Shared memory is addressed by 32-bit numbers, starting at SharedBase(). A warp has 32 threads.
// The fragments of matrices (which thread holds which elements) are those of the PTX ISA, chapter
// "Matrix multiply-accumulate operation using mma instruction", m16n8k16.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_DEVICE_H_
#define PAGODA_KERNELS_CUDA_DEVICE_DEVICE_H_

#include <cstdint>

#include "kernels/numeric.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

// 16 bytes: the most efficient size of a thread's loads and stores.
struct alignas(16) Vector16 {
  uint32_t words[4];
};
struct alignas(8) Vector8 {
  uint32_t words[2];
};

}  // namespace pagoda::kernels::cuda

#ifdef __CUDACC__
#include "kernels/cuda/device/device_ptx.h"
#else
#include PAGODA_CUDA_EMULATION
#endif

namespace pagoda::kernels::cuda {

inline constexpr uint32_t kWarpThreads = 32;
// The shared memory that a block can have on every GPU: sm_86, sm_89 and sm_120 have no more.
inline constexpr uint32_t kSharedBytesEverywhere = 99 * 1024;

PAGODA_DEVICE uint32_t LaneIndex() { return ThreadIndex() % kWarpThreads; }
PAGODA_DEVICE uint32_t WarpIndex() { return ThreadIndex() / kWarpThreads; }

PAGODA_DEVICE float NegativeInfinity() { return std::bit_cast<float>(0xff800000u); }

// The value of lane `lane`.
PAGODA_DEVICE uint64_t Shuffle64(uint64_t value, uint32_t lane) {
  const uint32_t low = Shuffle(static_cast<uint32_t>(value), lane);
  const uint32_t high = Shuffle(static_cast<uint32_t>(value >> 32), lane);
  return uint64_t{high} << 32 | low;
}

// Sums in an order that does not depend on the lane, so that all lanes have the same bits.
PAGODA_DEVICE float SumOfWarp(float value) {
  for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) value += ShuffleXor(value, mask);
  return value;
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_DEVICE_H_
