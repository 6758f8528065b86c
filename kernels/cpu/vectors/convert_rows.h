// Copies rows of elements from one type to another. Cache writes and reads are made of this.
#ifndef PAGODA_KERNELS_CPU_VECTORS_CONVERT_ROWS_H_
#define PAGODA_KERNELS_CPU_VECTORS_CONVERT_ROWS_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/execution/isa.h"
#include "kernels/types.h"

namespace pagoda::kernels::cpu {

struct Rows {
  const std::byte* source = nullptr;
  uint64_t source_stride_bytes = 0;
  std::byte* target = nullptr;
  uint64_t target_stride_bytes = 0;
  uint64_t num_rows = 0;
  uint64_t row_elements = 0;
  // How far ahead of the current source elements to prefetch. A conversion's instructions fill a
  // core's window before they reach enough of the source to keep memory busy, and rows are too
  // short for hardware prefetchers. The prefetched addresses need not be valid.
  uint64_t prefetch_bytes = 0;
};

// Elements of 8 bits are multiplied by `scale` after their conversion to fp32, or divided by it
// before the conversion from fp32. Without elements of 8 bits, `scale` is 1. Rounds to nearest,
// ties to even. All implementations yield the same bits, except for NaN.
using ConvertRows = void (*)(const Rows& rows, float scale);

// Whether stores go through the caches or bypass them. Through is better for data that a kernel
// reads soon; bypassing is faster for more data than the caches hold. Bypassing needs rows of whole
// lines: kStreamAlignment divides the target's address, its stride and a row's bytes.
enum class Stores : uint8_t { kThroughCaches, kPastCaches };
inline constexpr uint64_t kStreamAlignment = 64;

// Orders this thread's stores that bypassed the caches before its later stores, for every thread.
// Call it after the last row.
void FenceStores();

// A call that stores at least this many bytes bypasses the caches. Measured with 2 MiB of L2 per
// core, for data that is read at once: stores through the caches are faster up to 8 MiB, and slower
// from 16 MiB on.
inline constexpr uint64_t kPastCachesBytes = 16 << 20;

// REQUIRES: at most one type has 8 bits, unless both are the same. A conversion of a type to itself
// copies bytes, whatever the scale.
ConvertRows FindConversion(ElementType from, ElementType to, Isa isa, Stores stores);

// 1 / scale if it is exact, else 0. Multiplication by an exact reciprocal gives the same result as
// division by `scale`, and is faster.
inline float ExactReciprocal(float scale) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  const uint32_t exponent = (bits >> 23) & 0xffu;
  const bool is_power_of_two = (bits & 0x7fffffu) == 0 && exponent >= 1 && exponent <= 253;
  return is_power_of_two ? 1.0f / scale : 0.0f;
}

// The parts of FindConversion, each compiled for its instruction set.
ConvertRows FindPortableConversion(ElementType from, ElementType to);
ConvertRows FindAvx2Conversion(ElementType from, ElementType to, Stores stores);
ConvertRows FindAvx512Conversion(ElementType from, ElementType to, Stores stores);

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_VECTORS_CONVERT_ROWS_H_
