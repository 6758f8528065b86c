// Registers of 8 numbers, with fused multiplication and binary16. In an anonymous namespace on
// purpose, like those of AVX-512.
#ifndef PAGODA_KERNELS_CPU_VECTORS_SIMD_AVX2_H_
#define PAGODA_KERNELS_CPU_VECTORS_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace pagoda::kernels::cpu {
namespace {

struct Simd {
  using F = __m256;
  static constexpr uint32_t kLanes = 8;
  static constexpr uint32_t kDots = 8;
  static constexpr uint32_t kBlockRows = 6;
  static constexpr uint32_t kValueVectors = 2;

  static F Zero() { return _mm256_setzero_ps(); }
  static F Set(float x) { return _mm256_set1_ps(x); }
  static F Iota() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static float ReduceMax(F x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  static float ReduceAdd(F x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }
  static F Select(F x, uint32_t bits) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit);
    return _mm256_blendv_ps(Set(-__builtin_inff()), x,
                            _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bit)));
  }
  static F SignBit() { return _mm256_set1_ps(-0.0f); }
  static F Abs(F x) { return _mm256_andnot_ps(SignBit(), x); }
  static F CopySign(F x, F sign) { return _mm256_or_ps(Abs(x), _mm256_and_ps(SignBit(), sign)); }
  static F IfSmall(F x, float bound, F a, F b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(Abs(x), Set(bound), _CMP_LT_OQ));
  }
  static F RoundToInteger(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | 8); }
  // NaN for infinities; ScaleBy ignores it.
  static F RoundingRest(F x) { return Sub(x, RoundToInteger(x)); }
  // x * 2^n for whole n up to 127; 0 for n below -126, whatever x is.
  static F ScaleBy(F x, F n) {
    // max_ps returns its second operand, n, if one of them is NaN.
    const F bounded = _mm256_max_ps(Set(-127.0f), n);
    const __m256i exponent = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_cvtps_epi32(bounded), _mm256_set1_epi32(127)), 23);
    const F scaled = Mul(x, _mm256_castsi256_ps(exponent));
    return _mm256_and_ps(scaled, _mm256_cmp_ps(n, Set(-126.0f), _CMP_NLT_UQ));
  }
  static bool AllFinite(F x) {
    const F largest = Set(3.402823466e38f);
    return _mm256_movemask_ps(_mm256_cmp_ps(Abs(x), largest, _CMP_NLE_UQ)) == 0;
  }

  template <ElementType kType>
  static F LoadElements(const std::byte* p) {
    if constexpr (kType == ElementType::kFloat32) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    } else if constexpr (kType == ElementType::kFloat16) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    } else if constexpr (kType == ElementType::kBFloat16) {
      const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    } else {
      const __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
      if constexpr (kType == ElementType::kFloat8E5M2) {
        return _mm256_cvtph_ps(_mm_slli_epi16(x, 8));
      } else {
        const __m128i magnitude = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x7f)), 7);
        const __m128i sign = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x80)), 8);
        const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f << 7));
        const __m128i half =
            _mm_blendv_epi8(_mm_or_si128(magnitude, sign), _mm_set1_epi16(0x7e00), nan);
        return _mm256_mul_ps(_mm256_cvtph_ps(half), Set(256.0f));
      }
    }
  }

  template <ElementType kType>
  static void LoadPair(const std::byte* p, F& a, F& b) {
    if constexpr (kType == ElementType::kBFloat16) {
      const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      a = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
      b = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(-65536)));
    } else {
      a = LoadElements<kType>(p);
      b = LoadElements<kType>(p + kLanes * ElementBytes(kType));
    }
  }

  static F SumEach(const F* x) {
    const F a = _mm256_hadd_ps(_mm256_hadd_ps(x[0], x[1]), _mm256_hadd_ps(x[2], x[3]));
    const F b = _mm256_hadd_ps(_mm256_hadd_ps(x[4], x[5]), _mm256_hadd_ps(x[6], x[7]));
    return Add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }

  template <uint32_t kRows>
  static void StoreRows(F x, float* p, uint32_t stride) {
    if constexpr (kRows == 1) {
      Store(p, x);
    } else {
      const __m128 low = _mm256_castps256_ps128(x), high = _mm256_extractf128_ps(x, 1);
      if constexpr (kRows == 2) {
        _mm_storeu_ps(p, low);
        _mm_storeu_ps(p + stride, high);
      } else {
        _mm_storel_pi(reinterpret_cast<__m64*>(p), low);
        _mm_storeh_pi(reinterpret_cast<__m64*>(p + stride), low);
        _mm_storel_pi(reinterpret_cast<__m64*>(p + 2 * stride), high);
        _mm_storeh_pi(reinterpret_cast<__m64*>(p + 3 * stride), high);
      }
    }
  }

  static void Transpose(F* x) {
    F t[8], u[8];
    for (int i = 0; i < 4; ++i) {
      t[2 * i] = _mm256_unpacklo_ps(x[2 * i], x[2 * i + 1]);
      t[2 * i + 1] = _mm256_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
      u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
      u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
      u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int j = 0; j < 4; ++j) {
      x[j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x20);
      x[4 + j] = _mm256_permute2f128_ps(u[j], u[4 + j], 0x31);
    }
  }
};

}  // namespace
}  // namespace pagoda::kernels::cpu

#endif  // PAGODA_KERNELS_CPU_VECTORS_SIMD_AVX2_H_
