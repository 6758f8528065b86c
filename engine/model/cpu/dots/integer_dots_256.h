// The integer dot products in registers of 256 bits. Each file that compiles them includes this
// once, after it has defined
//   __m256i Dot(const uint8_t* weights, const int8_t* row, __m256i& second)
// which multiplies 32 bytes of each. The sums of the first 16 are in the result and those of the
// others in `second`, in kSplit == 2; or all are in the result, lanes 0 to 3 those of the first 16,
// in kSplit == 1. Everything is in an anonymous namespace: see vector_loops_body.h.
#ifndef PAGODA_ENGINE_MODEL_CPU_DOTS_INTEGER_DOTS_256_H_
#define PAGODA_ENGINE_MODEL_CPU_DOTS_INTEGER_DOTS_256_H_

#include <immintrin.h>

#include "engine/model/cpu/dots/dots.h"

namespace pagoda {
namespace {

float SumOfLanes(__m256 lanes) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
  return _mm_cvtss_f32(sum);
}

// The scales of the two groups of 16 in 32 elements, 4 times each.
__m256 TwoScales(const float* scales) {
  return _mm256_set_m128(_mm_broadcast_ss(scales + 1), _mm_broadcast_ss(scales));
}

template <uint64_t kGroup, int kRows>
void DotRows(const IntegerDotCall& call, uint64_t first_row) {
  const uint64_t floats = call.row_bytes / sizeof(float);
  const int8_t* const rows = call.first.integers + first_row * call.row_bytes;
  const float* const scales = call.first.scales + first_row * floats;
  const float* const sums =
      (kGroup == 16 ? call.first.sums16 : call.first.sums32) + first_row * floats;
  __m256 totals[kRows];
  for (__m256& total : totals) total = _mm256_setzero_ps();
  for (uint64_t i = 0; i < call.padded_inputs; i += 32) {
    for (int r = 0; r < kRows; ++r) {
      __m256i second = _mm256_setzero_si256();
      const __m256i dot = Dot(call.weights.integers + i, rows + r * call.row_bytes + i, second);
      const __m256 scale = _mm256_loadu_ps(scales + r * floats + i / 4);
      const float* const weight_scales = call.weights.scales + i / kGroup;
      if constexpr (kGroup == 32) {
        const __m256i both = kSplit == 2 ? _mm256_add_epi32(dot, second) : dot;
        totals[r] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(both),
                            _mm256_mul_ps(scale, _mm256_broadcast_ss(weight_scales)), totals[r]);
      } else if constexpr (kSplit == 2) {
        const __m256 low = _mm256_mul_ps(scale, _mm256_broadcast_ss(weight_scales));
        const __m256 high = _mm256_mul_ps(scale, _mm256_broadcast_ss(weight_scales + 1));
        totals[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), low, totals[r]);
        totals[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(second), high, totals[r]);
      } else {
        totals[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                                    _mm256_mul_ps(scale, TwoScales(weight_scales)), totals[r]);
      }
    }
  }
  const uint64_t groups = (call.padded_inputs / kGroup + 7) / 8 * 8;
  for (int r = 0; r < kRows; ++r) {
    for (uint64_t g = 0; g < groups; g += 8) {
      totals[r] = _mm256_fnmadd_ps(_mm256_loadu_ps(call.weights.minimums + g),
                                   _mm256_loadu_ps(sums + r * floats + g), totals[r]);
    }
    call.output[(first_row + r) * call.output_stride] = SumOfLanes(totals[r]);
  }
}

template <uint64_t kGroup>
void AllRows(const IntegerDotCall& call) {
  uint64_t row = 0;
  for (; row + 4 <= call.num_rows; row += 4) DotRows<kGroup, 4>(call, row);
  if (row + 2 <= call.num_rows) {
    DotRows<kGroup, 2>(call, row);
    row += 2;
  }
  if (row < call.num_rows) DotRows<kGroup, 1>(call, row);
}

void Dots(const IntegerDotCall& call) {
  if (call.group_elements == 16) return AllRows<16>(call);
  AllRows<32>(call);
}

}  // namespace
}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_DOTS_INTEGER_DOTS_256_H_
