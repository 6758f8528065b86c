#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/vectors/convert_rows.h"
#include "kernels/numeric.h"

// Only from here on: code of headers is compiled for every machine.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

namespace pagoda::kernels::cpu {
namespace {

constexpr uint64_t kLanes = 16;

// The elements of `mask` among 16, as fp32.
__m512 Load(const float* source, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, source); }

__m512 Load(const Half* source, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, source));
}

__m512 Load(const BFloat16* source, __mmask16 mask) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, source));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

__m512 Load(const Float8E5M2* source, __mmask16 mask) {  // The upper half of a binary16.
  const __m256i bits = _mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(mask, source));
  return _mm512_cvtph_ps(_mm256_slli_epi16(bits, 8));
}

__m512 Load(const Float8E4M3* source, __mmask16 mask) {
  // The number is read as a binary16 with the same exponent bits. That is 2^8 too small, also for
  // subnormals.
  const __m256i bits = _mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(mask, source));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(bits, _mm256_set1_epi16(0x80)), 8);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
  const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
  __m256i half = _mm256_slli_epi16(magnitude, 7);
  half = _mm256_mask_mov_epi16(half, nan, _mm256_set1_epi16(0x7e00));
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, sign)), _mm512_set1_ps(256.0f));
}

// The bits of 16 elements of type To, each in the low bits of 32. A line of the target has 64 /
// sizeof(To) elements.
template <class To>
struct Lanes;

template <>
struct Lanes<float> {
  [[gnu::always_inline]] static __m512i Of(__m512 values) { return _mm512_castps_si512(values); }
  static void Store(void* target, __mmask16 mask, __m512i lanes) {
    _mm512_mask_storeu_epi32(target, mask, lanes);
  }
};

struct Lanes16 {
  static void Store(void* target, __mmask16 mask, __m512i lanes) {
    _mm512_mask_cvtepi32_storeu_epi16(target, mask, lanes);
  }
};

template <>
struct Lanes<Half> : Lanes16 {
  [[gnu::always_inline]] static __m512i Of(__m512 values) {
    return _mm512_cvtepu16_epi32(
        _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};

template <>
struct Lanes<BFloat16> : Lanes16 {
  // vcvtneps2bf16 would treat subnormals as zero.
  [[gnu::always_inline]] static __m512i Of(__m512 values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i upper = _mm512_srli_epi32(bits, 16);
    const __m512i even = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i half_way_to_even = _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff));
    const __m512i result = _mm512_srli_epi32(_mm512_add_epi32(bits, half_way_to_even), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(result, nan, upper, _mm512_set1_epi32(0x40));
  }
};

template <int kFractionBits, int kBias>
struct Lanes8 {
  static void Store(void* target, __mmask16 mask, __m512i lanes) {
    _mm512_mask_cvtepi32_storeu_epi8(target, mask, lanes);
  }
  // The same result as ToFloat8Bits of numeric.h, in fewer steps. After adding 2^(e + dropped bits)
  // to a number of exponent e, the last bits of the sum are its units of 8 bits, rounded. Below the
  // smallest normal, e is the exponent of the smallest normal, and the units are subnormals.
  [[gnu::always_inline]] static __m512i Of(__m512 values) {
    constexpr int kDropped = 23 - kFractionBits;
    constexpr int kSmallestNormal = (127 + 1 - kBias) << 23;
    constexpr float kLargest = kFractionBits == 3 ? kLargestFloat8E4M3 : kLargestFloat8E5M2;
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __m512i bounded =
        _mm512_min_epu32(magnitude, _mm512_castps_si512(_mm512_set1_ps(kLargest)));
    const __m512i exponent =
        _mm512_max_epu32(_mm512_and_si512(bounded, _mm512_set1_epi32(0x7f800000)),
                         _mm512_set1_epi32(kSmallestNormal));
    const __m512i units = _mm512_add_epi32(exponent, _mm512_set1_epi32(kDropped << 23));
    const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(bounded), _mm512_castsi512_ps(units));
    const __m512i rounded = _mm512_sub_epi32(_mm512_castps_si512(sum), units);
    // A normal number's units begin with the bit that is not stored: one exponent too much.
    const __m512i stored_exponent =
        _mm512_srli_epi32(_mm512_sub_epi32(exponent, _mm512_set1_epi32(kSmallestNormal)), kDropped);
    __m512i result = _mm512_add_epi32(rounded, stored_exponent);
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    result = _mm512_mask_mov_epi32(result, nan, _mm512_set1_epi32(0x7f));
    return _mm512_or_si512(result, sign);
  }
};

template <>
struct Lanes<Float8E4M3> : Lanes8<3, 7> {};
template <>
struct Lanes<Float8E5M2> : Lanes8<2, 15> {};

// How the scale is applied to 8-bit elements on either side.
enum class Scaling { kMultiply, kDivide };

// Both are always inlined, so that the constants stay in registers.
template <class From, class To, Scaling kScaling>
[[gnu::always_inline]] inline __m512i ConvertLanes(const From* source, __mmask16 mask,
                                                   __m512 scales) {
  __m512 values = Load(source, mask);
  if constexpr (kScaling == Scaling::kDivide) {
    values = _mm512_div_ps(values, scales);
  } else if constexpr (sizeof(From) == 1 || sizeof(To) == 1) {
    values = _mm512_mul_ps(values, scales);
  }
  return Lanes<To>::Of(values);
}

// Always stores a whole line at once. Parts of a line that bypass the caches one by one can each
// become a memory access.
template <class From, class To, Scaling kScaling>
[[gnu::always_inline]] inline __m512i ConvertLine(const From* source, __m512 scales) {
  const auto lanes = [&](uint64_t k) __attribute__((always_inline)) {
    return ConvertLanes<From, To, kScaling>(source + k * kLanes, 0xffff, scales);
  };
  if constexpr (sizeof(To) == 4) {
    return lanes(0);
  } else if constexpr (sizeof(To) == 2) {
    // Packed within quarters of the vectors; the permutation restores the order.
    const __m512i packed = _mm512_packus_epi32(lanes(0), lanes(1));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
  } else {
    const __m512i packed = _mm512_packus_epi16(_mm512_packus_epi32(lanes(0), lanes(1)),
                                               _mm512_packus_epi32(lanes(2), lanes(3)));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, packed);
  }
}

template <class From, class To, Stores kStores, Scaling kScaling>
void ConvertScaled(const Rows& rows, float scale) {
  constexpr uint64_t kLineElements = 64 / sizeof(To);
  const __m512 scales = _mm512_set1_ps(scale);
  for (uint64_t row = 0; row < rows.num_rows; ++row) {
    const auto* source =
        reinterpret_cast<const From*>(rows.source + row * rows.source_stride_bytes);
    auto* target = reinterpret_cast<To*>(rows.target + row * rows.target_stride_bytes);
    uint64_t i = 0;
    for (; i + kLineElements <= rows.row_elements; i += kLineElements) {
      const char* ahead = reinterpret_cast<const char*>(source + i) + rows.prefetch_bytes;
      for (uint64_t byte = 0; byte < kLineElements * sizeof(From); byte += 64) {
        _mm_prefetch(ahead + byte, _MM_HINT_T0);
      }
      const __m512i line = ConvertLine<From, To, kScaling>(source + i, scales);
      if constexpr (kStores == Stores::kPastCaches) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), line);
      } else {
        _mm512_storeu_si512(target + i, line);
      }
    }
    for (; i < rows.row_elements; i += kLanes) {
      const uint64_t rest = rows.row_elements - i;
      const auto mask = static_cast<__mmask16>(rest >= kLanes ? 0xffff : (1u << rest) - 1);
      Lanes<To>::Store(target + i, mask,
                       ConvertLanes<From, To, kScaling>(source + i, mask, scales));
    }
  }
}

template <class From, class To, Stores kStores>
void Convert(const Rows& rows, float scale) {
  if constexpr (sizeof(To) > 1) {
    ConvertScaled<From, To, kStores, Scaling::kMultiply>(rows, scale);
  } else if (const float reciprocal = ExactReciprocal(scale); reciprocal != 0) {
    ConvertScaled<From, To, kStores, Scaling::kMultiply>(rows, reciprocal);
  } else {
    ConvertScaled<From, To, kStores, Scaling::kDivide>(rows, scale);
  }
}

template <uint64_t kElementBytes, Stores kStores>
void Copy(const Rows& rows, float) {
  constexpr uint64_t kLine = 64;
  const uint64_t row_bytes = rows.row_elements * kElementBytes;
  for (uint64_t row = 0; row < rows.num_rows; ++row) {
    const std::byte* source = rows.source + row * rows.source_stride_bytes;
    std::byte* target = rows.target + row * rows.target_stride_bytes;
    uint64_t i = 0;
    for (; i + kLine <= row_bytes; i += kLine) {
      const __m512i line = _mm512_loadu_si512(source + i);
      if constexpr (kStores == Stores::kPastCaches) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), line);
      } else {
        _mm512_storeu_si512(target + i, line);
      }
    }
    if (i == row_bytes) continue;
    const __mmask64 rest = (uint64_t{1} << (row_bytes - i)) - 1;
    _mm512_mask_storeu_epi8(target + i, rest, _mm512_maskz_loadu_epi8(rest, source + i));
  }
}

template <Stores kStores>
ConvertRows Find(ElementType from, ElementType to) {
  return VisitElementType(from, [&]<class From>() {
    return VisitElementType(to, []<class To>() -> ConvertRows {
      if constexpr (std::is_same_v<From, To>) {
        return Copy<sizeof(From), kStores>;
      } else if constexpr (sizeof(From) == 1 && sizeof(To) == 1) {
        return nullptr;
      } else {
        return Convert<From, To, kStores>;
      }
    });
  });
}

}  // namespace

ConvertRows FindAvx512Conversion(ElementType from, ElementType to, Stores stores) {
  return stores == Stores::kPastCaches ? Find<Stores::kPastCaches>(from, to)
                                       : Find<Stores::kThroughCaches>(from, to);
}

}  // namespace pagoda::kernels::cpu

#pragma GCC pop_options
