// Conversions of elements of 8 bits, for kernels that multiply 16 bits.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_FLOAT8_H_
#define PAGODA_KERNELS_CUDA_DEVICE_FLOAT8_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/device.h"

namespace pagoda::kernels::cuda {

// The elements of a kernel's K and V, known when it is compiled.
enum class KvFormat : uint8_t {
  k16Bits,  // Those of the products.
  kE4M3,
  kE5M2,
};

// Two e4m3 elements, at bits 8 and 24 of `spread`, as a pair of T (Half or BFloat16), without the
// hardware's conversion. Shifts their exponent and fraction to T's positions; a product corrects
// the exponent's bias, for subnormals too. Exact for finite numbers.
template <class T>
PAGODA_DEVICE uint32_t PairOfE4M3(uint32_t spread) {
  const uint32_t sign = spread & 0x80008000u;
  const uint32_t magnitude = spread & 0x7f007f00u;
  return std::is_same_v<T, Half>
             ? MultiplyPairs<Half>(sign | magnitude >> 1, 0x5c005c00u)       // 2^8
             : MultiplyPairs<BFloat16>(sign | magnitude >> 4, 0x7b807b80u);  // 2^120
}

// Four e4m3 elements, the first one in the low bits, as two pairs of T.
template <class T>
PAGODA_DEVICE void FromE4M3BySteps(uint32_t bytes, uint32_t& first, uint32_t& second) {
  constexpr uint32_t kNan = std::is_same_v<T, Half> ? 0x7e00u : 0x7fc0u;
  first = PairOfE4M3<T>(PermuteBytes(bytes, 0x1404));
  second = PairOfE4M3<T>(PermuteBytes(bytes, 0x3424));
  // A byte without its sign of 0x7f is NaN.
  const uint32_t nan = ((bytes & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
  if (nan == 0) return;
  if (nan & 0x80u) first = (first & 0xffff0000u) | kNan;
  if (nan & 0x8000u) first = (first & 0xffffu) | kNan << 16;
  if (nan & 0x800000u) second = (second & 0xffff0000u) | kNan;
  if (nan & 0x80000000u) second = (second & 0xffffu) | kNan << 16;
}

// A pair of Half as a pair of T. Exact if T holds the numbers.
template <class T>
PAGODA_DEVICE uint32_t FromHalves(uint32_t pair) {
  if constexpr (std::is_same_v<T, Half>) {
    return pair;
  } else {
    return PackPair<T>(LowOfHalves(pair), HighOfHalves(pair));
  }
}

// Four elements of 8 bits, the first one in the low bits, as two pairs of T. Exact, for infinities
// and NaN too.
template <KvFormat kFormat, class T>
PAGODA_DEVICE void FromFloat8(uint32_t bytes, uint32_t& first, uint32_t& second) {
  static_assert(kFormat != KvFormat::k16Bits);
  if constexpr (kFormat == KvFormat::kE5M2) {
    // A Half without its low byte.
    first = FromHalves<T>(PermuteBytes(bytes, 0x1404));
    second = FromHalves<T>(PermuteBytes(bytes, 0x3424));
  } else if constexpr (kConvertsE4M3) {
    first = FromHalves<T>(HalvesOfE4M3(bytes));
    second = FromHalves<T>(HalvesOfE4M3(bytes >> 16));
  } else {
    FromE4M3BySteps<T>(bytes, first, second);
  }
}

// The same with a format that is only known at run time.
template <class T>
PAGODA_DEVICE void FromFloat8(uint32_t bytes, ElementType type, uint32_t& first, uint32_t& second) {
  if (type == ElementType::kFloat8E5M2) {
    FromFloat8<KvFormat::kE5M2, T>(bytes, first, second);
  } else {
    FromFloat8<KvFormat::kE4M3, T>(bytes, first, second);
  }
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_FLOAT8_H_
