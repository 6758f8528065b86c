// Look-ups of 64 numbers of 8 bits at a time, by AVX-512 VBMI. Included after
// vectors/simd_avx512.h, and in an anonymous namespace like it.
#ifndef PAGODA_KERNELS_CPU_ATTENTION_SIMD_FLOAT8_H_
#define PAGODA_KERNELS_CPU_ATTENTION_SIMD_FLOAT8_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_tile.h"

namespace pagoda::kernels::cpu {
namespace {

inline constexpr uint32_t kLineElements = 64;

// Which part of a line a function handles. A load with a mask costs more than one without.
enum class Line { kWhole, kStart };

// The compiler must not keep the operands of loads before this for loads behind it. It would keep
// all queries in registers, and the sums in memory.
[[gnu::always_inline]] inline void LoadAgain() { __asm__ volatile("" ::: "memory"); }

// A table in registers. Two look-ups give the upper and the lower bytes of 64 numbers of bf16. Both
// types of 8 bits have less range than bf16, so this is exact, for subnormals and NaN too.
class Float8Lookup {
 public:
  explicit Float8Lookup(const Float8Table& table)
      : upper_{_mm512_loadu_si512(table.upper), _mm512_loadu_si512(table.upper + 64)},
        lower_{_mm512_loadu_si512(table.lower), _mm512_loadu_si512(table.lower + 64)},
        sign_(_mm512_set1_epi8(-128)) {}

  // A line as bf16, or its first `elements` and zeros. In each quarter of 16 elements, `first` gets
  // the first 8, `second` the others.
  template <Line kLine>
  [[gnu::always_inline]] void Load(const std::byte* p, uint32_t elements, __m512i& first,
                                   __m512i& second) const {
    const __m512i bytes = kLine == Line::kWhole
                              ? _mm512_loadu_si512(p)
                              : _mm512_maskz_loadu_epi8((uint64_t{1} << elements) - 1, p);
    const __m512i magnitude = _mm512_permutex2var_epi8(upper_[0], bytes, upper_[1]);
    const __m512i lower = _mm512_permutex2var_epi8(lower_[0], bytes, lower_[1]);
    // magnitude | (bytes & sign)
    const __m512i upper = _mm512_ternarylogic_epi32(magnitude, bytes, sign_, 0xf8);
    first = _mm512_unpacklo_epi8(lower, upper);
    second = _mm512_unpackhi_epi8(lower, upper);
  }

  // The same as fp32, in the order kBytePairs.
  template <Line kLine>
  [[gnu::always_inline]] void Load(const std::byte* p, uint32_t elements, __m512 (&x)[4]) const {
    const __m512i odd = _mm512_set1_epi32(-65536);
    __m512i first, second;
    Load<kLine>(p, elements, first, second);
    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    x[1] = _mm512_castsi512_ps(_mm512_and_si512(first, odd));
    x[2] = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
    x[3] = _mm512_castsi512_ps(_mm512_and_si512(second, odd));
  }

 private:
  const __m512i upper_[2];
  const __m512i lower_[2];
  const __m512i sign_;
};

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_ATTENTION_SIMD_FLOAT8_H_
