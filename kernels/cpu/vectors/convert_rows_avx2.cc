#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/vectors/convert_rows.h"
#include "kernels/numeric.h"

// Only from here on: code of headers is compiled for every machine.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace pagoda::kernels::cpu {
namespace {

constexpr uint64_t kLanes = 16;

struct Floats {  // kLanes numbers.
  __m256 low, high;
};

__m256i LoadBytes32(const void* source) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(source));
}

__m128i LoadBytes16(const void* source) {
  return _mm_loadu_si128(static_cast<const __m128i*>(source));
}

Floats FromHalves(__m256i halves) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

Floats Load(const float* source) { return {_mm256_loadu_ps(source), _mm256_loadu_ps(source + 8)}; }

Floats Load(const Half* source) { return FromHalves(LoadBytes32(source)); }

__m256 Widen(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

Floats Load(const BFloat16* source) {
  return {Widen(LoadBytes16(source)), Widen(LoadBytes16(source + 8))};
}

Floats Load(const Float8E5M2* source) {  // The upper half of a binary16.
  return FromHalves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(LoadBytes16(source)), 8));
}

Floats Load(const Float8E4M3* source) {
  // The number is read as a binary16 with the same exponent bits. That is 2^8 too small, also for
  // subnormals.
  const __m256i bits = _mm256_cvtepu8_epi16(LoadBytes16(source));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(bits, _mm256_set1_epi16(0x80)), 8);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
  const __m256i nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));
  const __m256i half =
      _mm256_blendv_epi8(_mm256_slli_epi16(magnitude, 7), _mm256_set1_epi16(0x7e00), nan);
  const Floats small = FromHalves(_mm256_or_si256(half, sign));
  const __m256 rebias = _mm256_set1_ps(256.0f);
  return {_mm256_mul_ps(small.low, rebias), _mm256_mul_ps(small.high, rebias)};
}

void PutBytes32(void* target, __m256i bits) {
  _mm256_storeu_si256(static_cast<__m256i*>(target), bits);
}

void PutBytes16(void* target, __m128i bits) {
  _mm_storeu_si128(static_cast<__m128i*>(target), bits);
}

void Put(float* target, Floats values) {
  _mm256_storeu_ps(target, values.low);
  _mm256_storeu_ps(target + 8, values.high);
}

void Put(Half* target, Floats values) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  PutBytes16(target, _mm256_cvtps_ph(values.low, kNearest));
  PutBytes16(target + 8, _mm256_cvtps_ph(values.high, kNearest));
}

// The low 16 bits of 8 + 8 numbers below 2^16.
__m256i Narrow(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

__m256i ToBFloat16Bits(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i even = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i half_way_to_even = _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff));
  const __m256i result = _mm256_srli_epi32(_mm256_add_epi32(bits, half_way_to_even), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(result, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
}

void Put(BFloat16* target, Floats values) {
  PutBytes32(target, Narrow(ToBFloat16Bits(values.low), ToBFloat16Bits(values.high)));
}

// The same result as ToFloat8Bits of numeric.h, in fewer steps. After adding 2^(e + dropped bits)
// to a number of exponent e, the last bits of the sum are its units of 8 bits, rounded. Below the
// smallest normal, e is the exponent of the smallest normal, and the units are subnormals.
template <int kFractionBits, int kBias>
__m256i ToFloat8Bits(__m256 values, float largest) {
  constexpr int kDropped = 23 - kFractionBits;
  constexpr int kSmallestNormal = (127 + 1 - kBias) << 23;
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i bounded = _mm256_min_epu32(magnitude, _mm256_castps_si256(_mm256_set1_ps(largest)));
  const __m256i exponent = _mm256_max_epu32(
      _mm256_and_si256(bounded, _mm256_set1_epi32(0x7f800000)), _mm256_set1_epi32(kSmallestNormal));
  const __m256i units = _mm256_add_epi32(exponent, _mm256_set1_epi32(kDropped << 23));
  const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(bounded), _mm256_castsi256_ps(units));
  const __m256i rounded = _mm256_sub_epi32(_mm256_castps_si256(sum), units);
  // A normal number's units begin with the bit that is not stored: one exponent too much.
  const __m256i stored_exponent =
      _mm256_srli_epi32(_mm256_sub_epi32(exponent, _mm256_set1_epi32(kSmallestNormal)), kDropped);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  const __m256i result =
      _mm256_blendv_epi8(_mm256_add_epi32(rounded, stored_exponent), _mm256_set1_epi32(0x7f), nan);
  return _mm256_or_si256(result, sign);
}

template <int kFractionBits, int kBias>
void PutFloat8(void* target, Floats values, float largest) {
  const __m256i bits = Narrow(ToFloat8Bits<kFractionBits, kBias>(values.low, largest),
                              ToFloat8Bits<kFractionBits, kBias>(values.high, largest));
  PutBytes16(target,
             _mm_packus_epi16(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
}

void Put(Float8E4M3* target, Floats values) { PutFloat8<3, 7>(target, values, kLargestFloat8E4M3); }

void Put(Float8E5M2* target, Floats values) {
  PutFloat8<2, 15>(target, values, kLargestFloat8E5M2);
}

// How the scale is applied to 8-bit elements on either side.
enum class Scaling { kMultiply, kDivide };

template <class From, class To, Scaling kScaling>
void ConvertLanes(const From* source, To* target, __m256 scales) {
  Floats values = Load(source);
  if constexpr (kScaling == Scaling::kDivide) {
    values = {_mm256_div_ps(values.low, scales), _mm256_div_ps(values.high, scales)};
  } else if constexpr (sizeof(From) == 1 || sizeof(To) == 1) {
    values = {_mm256_mul_ps(values.low, scales), _mm256_mul_ps(values.high, scales)};
  }
  Put(target, values);
}

template <class From, class To, Scaling kScaling>
void ConvertScaled(const Rows& rows, float scale) {
  const __m256 scales = _mm256_set1_ps(scale);
  for (uint64_t row = 0; row < rows.num_rows; ++row) {
    const auto* source =
        reinterpret_cast<const From*>(rows.source + row * rows.source_stride_bytes);
    auto* target = reinterpret_cast<To*>(rows.target + row * rows.target_stride_bytes);
    uint64_t i = 0;
    for (; i + kLanes <= rows.row_elements; i += kLanes) {
      ConvertLanes<From, To, kScaling>(source + i, target + i, scales);
    }
    const uint64_t rest = rows.row_elements - i;
    if (rest == 0) continue;
    From from[kLanes] = {};
    To to[kLanes];
    std::memcpy(from, source + i, rest * sizeof(From));
    ConvertLanes<From, To, kScaling>(from, to, scales);
    std::memcpy(target + i, to, rest * sizeof(To));
  }
}

template <class From, class To>
void Convert(const Rows& rows, float scale) {
  if constexpr (sizeof(To) > 1) {
    ConvertScaled<From, To, Scaling::kMultiply>(rows, scale);
  } else if (const float reciprocal = ExactReciprocal(scale); reciprocal != 0) {
    ConvertScaled<From, To, Scaling::kMultiply>(rows, reciprocal);
  } else {
    ConvertScaled<From, To, Scaling::kDivide>(rows, scale);
  }
}

template <uint64_t kElementBytes, Stores kStores>
void Copy(const Rows& rows, float) {
  constexpr uint64_t kStep = 32;
  const uint64_t row_bytes = rows.row_elements * kElementBytes;
  for (uint64_t row = 0; row < rows.num_rows; ++row) {
    const std::byte* source = rows.source + row * rows.source_stride_bytes;
    std::byte* target = rows.target + row * rows.target_stride_bytes;
    uint64_t i = 0;
    for (; i + kStep <= row_bytes; i += kStep) {
      if constexpr (kStores == Stores::kPastCaches) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(target + i), LoadBytes32(source + i));
      } else {
        PutBytes32(target + i, LoadBytes32(source + i));
      }
    }
    std::memcpy(target + i, source + i, row_bytes - i);
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
        return Convert<From, To>;
      }
    });
  });
}

}  // namespace

ConvertRows FindAvx2Conversion(ElementType from, ElementType to, Stores stores) {
  return stores == Stores::kPastCaches ? Find<Stores::kPastCaches>(from, to)
                                       : Find<Stores::kThroughCaches>(from, to);
}

}  // namespace pagoda::kernels::cpu

#pragma GCC pop_options
