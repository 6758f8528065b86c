// Registers of 16 numbers. In an anonymous namespace on purpose: each file that is compiled for
// AVX-512 has a separate copy, which the linker gives to no other file.
#ifndef PAGODA_KERNELS_CPU_VECTORS_SIMD_AVX512_H_
#define PAGODA_KERNELS_CPU_VECTORS_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace pagoda::kernels::cpu {
namespace {

struct Simd {
  using F = __m512;
  static constexpr uint32_t kLanes = 16;
  // The rows of decode's dot products at a time: rows * tokens = kLanes.
  static constexpr uint32_t kDots = 16;
  static constexpr uint32_t kBlockRows = 12;
  static constexpr uint32_t kValueVectors = 4;  // Sums of a row that decode keeps in registers.

  static F Zero() { return _mm512_setzero_ps(); }
  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Iota() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static float ReduceMax(F x) { return _mm512_reduce_max_ps(x); }
  static float ReduceAdd(F x) { return _mm512_reduce_add_ps(x); }
  // Lane i of x if bit i is set, else -infinity.
  static F Select(F x, uint32_t bits) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), Set(-__builtin_inff()), x);
  }
  static F Abs(F x) { return _mm512_abs_ps(x); }
  static F CopySign(F x, F sign) {
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        _mm512_set1_epi32(0x7fffffff), _mm512_castps_si512(x), _mm512_castps_si512(sign), 0xca));
  }
  // a where |x| < bound, else b; b for NaN.
  static F IfSmall(F x, float bound, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(Abs(x), Set(bound), _CMP_LT_OQ), b, a);
  }
  static F RoundToInteger(F x) { return _mm512_roundscale_ps(x, 0x08); }
  // x - RoundToInteger(x); 0 for infinities.
  static F RoundingRest(F x) { return _mm512_reduce_ps(x, 0x08); }
  // x * 2^n for whole n, 0 for n = -infinity.
  static F ScaleBy(F x, F n) { return _mm512_scalef_ps(x, n); }
  static bool AllFinite(F x) {
    return _mm512_fpclass_ps_mask(x, 0x99) == 0;  // Either NaN, either infinity.
  }

  static F FromHalf(__m256i x) { return _mm512_cvtph_ps(x); }

  // Loads kLanes elements from p as fp32.
  template <ElementType kType>
  static F LoadElements(const std::byte* p) {
    if constexpr (kType == ElementType::kFloat32) {
      return _mm512_loadu_ps(p);
    } else if constexpr (kType == ElementType::kFloat16) {
      return FromHalf(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    } else if constexpr (kType == ElementType::kBFloat16) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
    } else {
      const __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
      if constexpr (kType == ElementType::kFloat8E5M2) {
        return FromHalf(_mm256_slli_epi16(x, 8));
      } else {
        // The same bits as binary16 are 2^8 times smaller; all ones but the sign are NaN.
        const __m256i magnitude =
            _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x7f)), 7);
        const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
        const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f << 7));
        const __m256i half =
            _mm256_mask_mov_epi16(_mm256_or_si256(magnitude, sign), nan, _mm256_set1_epi16(0x7e00));
        return _mm512_mul_ps(FromHalf(half), Set(256.0f));
      }
    }
  }

  // 2 * kLanes elements: for bf16 the even ones and the odd ones, else the first and the last.
  template <ElementType kType>
  static void LoadPair(const std::byte* p, F& a, F& b) {
    if constexpr (kType == ElementType::kBFloat16) {
      const __m512i x = _mm512_loadu_si512(p);
      a = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
      b = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(-65536)));
    } else {
      a = LoadElements<kType>(p);
      b = LoadElements<kType>(p + kLanes * ElementBytes(kType));
    }
  }

  // Lane i: the sum of the lanes of x[i].
  static F SumEach(const F* x) {
    F t[8], u[4];
    for (int i = 0; i < 8; ++i) {
      t[i] = Add(_mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]),
                 _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]));
    }
    for (int i = 0; i < 4; ++i) {
      const __m512d a = _mm512_castps_pd(t[2 * i]), b = _mm512_castps_pd(t[2 * i + 1]);
      u[i] = Add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                 _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const F v = Add(_mm512_shuffle_f32x4(u[0], u[1], 0x88), _mm512_shuffle_f32x4(u[0], u[1], 0xdd));
    const F w = Add(_mm512_shuffle_f32x4(u[2], u[3], 0x88), _mm512_shuffle_f32x4(u[2], u[3], 0xdd));
    return Add(_mm512_shuffle_f32x4(v, w, 0x88), _mm512_shuffle_f32x4(v, w, 0xdd));
  }

  // Writes lane i * kLanes / rows + t of x to p[i * stride + t].
  template <uint32_t kRows>
  static void StoreRows(F x, float* p, uint32_t stride) {
    if constexpr (kRows == 1) {
      Store(p, x);
    } else if constexpr (kRows == 2) {
      _mm256_storeu_ps(p, _mm512_castps512_ps256(x));
      _mm256_storeu_ps(p + stride, _mm512_extractf32x8_ps(x, 1));
    } else {
      _mm_storeu_ps(p, _mm512_castps512_ps128(x));
      _mm_storeu_ps(p + stride, _mm512_extractf32x4_ps(x, 1));
      _mm_storeu_ps(p + 2 * stride, _mm512_extractf32x4_ps(x, 2));
      _mm_storeu_ps(p + 3 * stride, _mm512_extractf32x4_ps(x, 3));
    }
  }

  static void Transpose(F* x) {
    F t[16];
    for (int i = 0; i < 8; ++i) {
      t[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
      t[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    // u[4 * i + j]: in each quarter q, column 4 * q + j of rows 4 * i to 4 * i + 3.
    F u[16];
    for (int i = 0; i < 4; ++i) {
      const __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 2]);
      const __m512d c = _mm512_castps_pd(t[4 * i + 1]), d = _mm512_castps_pd(t[4 * i + 3]);
      u[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      u[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
      u[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
      u[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
    }
    for (int j = 0; j < 4; ++j) {
      const F a = _mm512_shuffle_f32x4(u[j], u[4 + j], 0x88);
      const F b = _mm512_shuffle_f32x4(u[8 + j], u[12 + j], 0x88);
      const F c = _mm512_shuffle_f32x4(u[j], u[4 + j], 0xdd);
      const F d = _mm512_shuffle_f32x4(u[8 + j], u[12 + j], 0xdd);
      x[j] = _mm512_shuffle_f32x4(a, b, 0x88);
      x[8 + j] = _mm512_shuffle_f32x4(a, b, 0xdd);
      x[4 + j] = _mm512_shuffle_f32x4(c, d, 0x88);
      x[12 + j] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
  }
};

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_VECTORS_SIMD_AVX512_H_
