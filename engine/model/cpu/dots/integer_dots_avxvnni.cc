// Compiled for AVX-VNNI: the dot product of bytes in registers of 256 bits.
#include <immintrin.h>

#include <cstdint>

namespace pagoda {
namespace {

constexpr int kSplit = 1;

__m256i Dot(const uint8_t* weights, const int8_t* row, __m256i& second) {
  return _mm256_dpbusd_avx_epi32(second,
                                 _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)),
                                 _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
}

}  // namespace
}  // namespace pagoda

#include "engine/model/cpu/dots/integer_dots_256.h"

namespace pagoda {

void IntegerDotsAvxVnni(const IntegerDotCall& call) { Dots(call); }

}  // namespace pagoda
