// Compiled for AVX-512 with BF16. Calls no inline function of another header except intrinsics: see
// vector_loops_body.h.
#include <immintrin.h>

#include "engine/model/cpu/dots/dots.h"

namespace pagoda {
namespace {

constexpr uint64_t kPrefetchBytes = 4096;
constexpr int kSums = 4;  // Sums per row, so that additions do not wait for each other.

__m512bh Load(const std::byte* from) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from));
}
__m512bh Load(const std::byte* from, __mmask32 mask) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, from));
}

template <int kRows>
void DotRows(const DotCall& call, const std::byte* weights, const std::byte* rows, float* output) {
  __m512 sums[kRows][kSums];
  for (auto& sum : sums) {
    for (__m512& part : sum) part = _mm512_setzero_ps();
  }
  const uint64_t bytes = 2 * call.inputs;
  uint64_t i = 0;
  for (; i + 64 * kSums <= bytes; i += 64 * kSums) {
    for (int s = 0; s < kSums; ++s) {
      const std::byte* const at = weights + i + 64 * s;
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
      const __m512bh factors = Load(at);
      for (int r = 0; r < kRows; ++r) {
        sums[r][s] =
            _mm512_dpbf16_ps(sums[r][s], factors, Load(rows + r * call.row_bytes + i + 64 * s));
      }
    }
  }
  for (; i < bytes; i += 64) {
    const uint64_t left = (bytes - i) / 2;
    const __mmask32 mask = left >= 32 ? ~0u : (1u << left) - 1;
    const __m512bh factors = Load(weights + i, mask);
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], factors, Load(rows + r * call.row_bytes + i, mask));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const __m512 sum =
        _mm512_add_ps(_mm512_add_ps(sums[r][0], sums[r][1]), _mm512_add_ps(sums[r][2], sums[r][3]));
    output[r * call.output_stride] = _mm512_reduce_add_ps(sum);
  }
}

struct Float32 {
  static constexpr uint64_t kBytes = 4;
  static __m512 Load(const std::byte* from, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, from);
  }
};
struct Float16 {
  static constexpr uint64_t kBytes = 2;
  static __m512 Load(const std::byte* from, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
  }
};

__m512i Rounded(const __m512* values) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(values[1], values[0]));
}
__m512 Widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

template <class Weight>
void ToBFloat16(const std::byte* row, uint64_t inputs, std::byte* high, std::byte* low,
                uint64_t step_bytes) {
  for (uint64_t i = 0; i < inputs; i += 32, high += step_bytes) {
    const uint64_t left = inputs - i;
    const uint32_t mask = left >= 32 ? ~0u : (1u << left) - 1;
    const std::byte* const from = row + i * Weight::kBytes;
    __m512 values[2] = {
        Weight::Load(from, static_cast<__mmask16>(mask)),
        Weight::Load(from + 16 * Weight::kBytes, static_cast<__mmask16>(mask >> 16))};
    const __m512i rounded = Rounded(values);
    _mm512_storeu_si512(high, rounded);
    if (low == nullptr) continue;
    values[0] = _mm512_sub_ps(values[0], Widened(_mm512_castsi512_si256(rounded)));
    values[1] = _mm512_sub_ps(values[1], Widened(_mm512_extracti64x4_epi64(rounded, 1)));
    _mm512_storeu_si512(low, Rounded(values));
    low += step_bytes;
  }
}

}  // namespace

void Float32ToBFloat16Avx512(const std::byte* row, uint64_t inputs, std::byte* high, std::byte* low,
                             uint64_t step_bytes) {
  ToBFloat16<Float32>(row, inputs, high, low, step_bytes);
}

void Float16ToBFloat16Avx512(const std::byte* row, uint64_t inputs, std::byte* high, std::byte* low,
                             uint64_t step_bytes) {
  ToBFloat16<Float16>(row, inputs, high, low, step_bytes);
}

void BFloat16DotsAvx512(const DotCall& call) {
  for (uint64_t o = 0; o < call.outputs; ++o) {
    const std::byte* const weights = call.weights + o * call.weight_row_bytes;
    const std::byte* rows = call.rows;
    float* output = call.output + o;
    uint64_t left = call.num_rows;
    for (; left >= 4; left -= 4, rows += 4 * call.row_bytes, output += 4 * call.output_stride) {
      DotRows<4>(call, weights, rows, output);
    }
    for (; left > 0; --left, rows += call.row_bytes, output += call.output_stride) {
      DotRows<1>(call, weights, rows, output);
    }
  }
}

void UnpackedToBFloat16Avx512(const UnpackedRow& row, uint64_t group_elements, uint64_t inputs,
                              std::byte* output, uint64_t step_bytes) {
  for (uint64_t i = 0; i < inputs; i += 32, output += step_bytes) {
    __m512 values[2];
    for (int half = 0; half < 2; ++half) {
      const uint64_t at = i + 16 * half, group = at / group_elements;
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.integers + at));
      values[half] =
          _mm512_fmsub_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)),
                          _mm512_set1_ps(row.scales[group]), _mm512_set1_ps(row.minimums[group]));
    }
    _mm512_storeu_si512(output,
                        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(values[1], values[0])));
  }
}

}  // namespace pagoda
