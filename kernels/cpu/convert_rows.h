// Copies rows of elements from one type to another: what the cache's writes and reads are made of.
#ifndef PAGODA_KERNELS_CPU_CONVERT_ROWS_H_
#define PAGODA_KERNELS_CPU_CONVERT_ROWS_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/types.h"

namespace pagoda::kernels::cpu {

struct Rows {
  const std::byte* source = nullptr;
  uint64_t source_stride_bytes = 0;
  std::byte* target = nullptr;
  uint64_t target_stride_bytes = 0;
  uint64_t num_rows = 0;
  uint64_t row_elements = 0;
  // How far ahead of the source's elements those lie that are wanted soon. A conversion's
  // instructions fill a core's window before it reaches enough of the source to keep memory busy,
  // and rows are too short for prefetchers to find out. What lies there need not exist.
  uint64_t prefetch_bytes = 0;
};

// Elements of 8 bits are multiplied by `scale` behind their conversion to fp32, or divided by it
// before that from fp32; where there are none, it is 1. To nearest, ties to even; every
// implementation has the same bits but a NaN's.
using ConvertRows = void (*)(const Rows& rows, float scale);

// Through: the caches, past them. What a kernel reads soon goes through; what is more than they
// hold is faster past them. Past asks for rows of whole lines: kStreamAlignment divides the
// target's address, its stride and a row's bytes.
enum class Stores : uint8_t { kThroughCaches, kPastCaches };
inline constexpr uint64_t kStreamAlignment = 64;

// Orders what this thread stored past the caches before what it stores from now on: for every
// thread, behind its last row.
void FenceStores();

// A call that stores as many bytes does it past the caches. Measured where a core has 2 MiB of L2:
// what is stored through them and read at once is faster up to 8 MiB, and slower from 16 MiB on.
inline constexpr uint64_t kPastCachesBytes = 16 << 20;

// REQUIRES: not both are of 8 bits, unless they are the same. A type to itself is a copy of bytes,
// whatever the scale.
ConvertRows FindConversion(ElementType from, ElementType to, Isa isa, Stores stores);

// 1 / scale where that is exact, so that to multiply by it has the same result as to divide by
// `scale`, in less time; else 0.
inline float ExactReciprocal(float scale) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  const uint32_t exponent = (bits >> 23) & 0xffu;
  const bool is_power_of_two = (bits & 0x7fffffu) == 0 && exponent >= 1 && exponent <= 253;
  return is_power_of_two ? 1.0f / scale : 0.0f;
}

// The parts of FindConversion, each compiled for its instructions.
ConvertRows FindPortableConversion(ElementType from, ElementType to);
ConvertRows FindAvx2Conversion(ElementType from, ElementType to, Stores stores);
ConvertRows FindAvx512Conversion(ElementType from, ElementType to, Stores stores);

}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_CONVERT_ROWS_H_
