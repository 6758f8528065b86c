// The GPU features that the kernels use: a thread's indices, its block's shared memory, exchanges
// within a warp, products of the tensor cores, and background copies. Under nvcc each one is one or
// a few PTX instructions (device_ptx.h). Under a C++ compiler, PAGODA_CUDA_EMULATION names a header
// that does the same on the host, so that the kernels' indexing, masks and barriers are tested
// without a GPU: tests/kernels/cuda_emulation/.
//
// Shared memory is addressed by 32-bit numbers, starting at SharedBase(). A warp has 32 threads.
// The fragments of matrices (which thread holds which elements) are those of the PTX ISA, chapter
// "Matrix multiply-accumulate operation using mma instruction", m16n8k16.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_H_
#define PAGODA_KERNELS_CUDA_DEVICE_H_

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
#include "kernels/cuda/device_ptx.h"
#else
#include PAGODA_CUDA_EMULATION
#endif

namespace pagoda::kernels::cuda {

inline constexpr uint32_t kWarpThreads = 32;

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

// The special values of a float8 converter: NaN and (if the format has one) infinity, in one byte
// whose magnitude is above the largest finite number.
template <class T>
PAGODA_DEVICE uint32_t SpecialOfFloat8(uint32_t byte, ElementType type) {
  constexpr uint32_t kInfinity = std::is_same_v<T, Half> ? 0x7c00u : 0x7f80u;
  constexpr uint32_t kNan = std::is_same_v<T, Half> ? 0x7e00u : 0x7fc0u;
  const uint32_t sign = (byte & 0x80u) << 8;
  const bool infinite = type == ElementType::kFloat8E5M2 && (byte & 0x7fu) == 0x7cu;
  return sign | (infinite ? kInfinity : kNan);
}

// Converts two elements of 8 bits, at bits 8 and 24 of `spread`, to a pair of T (Half or BFloat16).
// Shifts their exponent and fraction to T's positions; a product corrects the exponent's bias, for
// subnormals too. Exact for finite numbers.
template <class T>
PAGODA_DEVICE uint32_t PairOfFloat8(uint32_t spread, ElementType type) {
  const uint32_t sign = spread & 0x80008000u;
  const uint32_t magnitude = spread & 0x7f007f00u;
  if constexpr (std::is_same_v<T, Half>) {
    if (type == ElementType::kFloat8E5M2) return spread;  // A binary16 without its low byte.
    return MultiplyPairs<Half>(sign | magnitude >> 1, 0x5c005c00u);  // 2^8
  } else {
    return type == ElementType::kFloat8E5M2
               ? MultiplyPairs<BFloat16>(sign | magnitude >> 3, 0x77807780u)   // 2^112
               : MultiplyPairs<BFloat16>(sign | magnitude >> 4, 0x7b807b80u);  // 2^120
  }
}

// Converts the four elements of 8 bits in `bytes`, first in the low bits, to two pairs of T.
template <class T>
PAGODA_DEVICE void FromFloat8(uint32_t bytes, ElementType type, uint32_t& first, uint32_t& second) {
  first = PairOfFloat8<T>(PermuteBytes(bytes, 0x1404), type);
  second = PairOfFloat8<T>(PermuteBytes(bytes, 0x3424), type);
  const uint32_t past_largest = type == ElementType::kFloat8E5M2 ? 0x04040404u : 0x01010101u;
  const uint32_t special = ((bytes & 0x7f7f7f7fu) + past_largest) & 0x80808080u;
  if (special == 0) return;
  if (special & 0x80u) first = (first & 0xffff0000u) | SpecialOfFloat8<T>(bytes, type);
  if (special & 0x8000u) {
    first = (first & 0xffffu) | SpecialOfFloat8<T>(bytes >> 8, type) << 16;
  }
  if (special & 0x800000u) {
    second = (second & 0xffff0000u) | SpecialOfFloat8<T>(bytes >> 16, type);
  }
  if (special & 0x80000000u) {
    second = (second & 0xffffu) | SpecialOfFloat8<T>(bytes >> 24, type) << 16;
  }
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_H_
