// Compiled for AVX2. The integers are widened to 16 bits, because the instruction for bytes
// (maddubs) saturates.
#include <immintrin.h>

#include <cstdint>

namespace pagoda {
namespace {

constexpr int kSplit = 2;

__m256i Sixteen(const uint8_t* weights, const int8_t* row) {
  const __m256i a =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
  const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
  return _mm256_madd_epi16(a, b);
}

__m256i Dot(const uint8_t* weights, const int8_t* row, __m256i& second) {
  second = Sixteen(weights + 16, row + 16);
  return Sixteen(weights, row);
}

}  // namespace
}  // namespace pagoda

#include "engine/model/cpu/dots/integer_dots_256.h"

namespace pagoda {

void IntegerDotsAvx2(const IntegerDotCall& call) { Dots(call); }

}  // namespace pagoda
