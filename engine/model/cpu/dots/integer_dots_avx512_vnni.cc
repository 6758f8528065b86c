// Compiled for AVX-512 with VNNI. Calls no inline function of another header except intrinsics: see
// vector_loops_body.h.
#include <immintrin.h>

#include "engine/model/cpu/dots/dots.h"

namespace pagoda {
namespace {

// Lane l of 16 has the sums of group l / (16 / groups) of the 64 elements.
template <uint64_t kGroup>
__m512i GroupOfLane() {
  if constexpr (kGroup == 16) {
    return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  } else {
    return _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  }
}

// The weights' arrays end with 16 zeros, so whole registers are read from any group on.
template <uint64_t kGroup, int kRows>
void DotRows(const IntegerDotCall& call, uint64_t first_row) {
  const uint64_t floats = call.row_bytes / sizeof(float);
  const int8_t* const rows = call.first.integers + first_row * call.row_bytes;
  const float* const scales = call.first.scales + first_row * floats;
  const float* const sums =
      (kGroup == 16 ? call.first.sums16 : call.first.sums32) + first_row * floats;
  const __m512i group_of_lane = GroupOfLane<kGroup>();
  __m512 totals[kRows];
  for (__m512& total : totals) total = _mm512_setzero_ps();
  for (uint64_t i = 0; i < call.padded_inputs; i += 64) {
    const __m512i weights = _mm512_loadu_si512(call.weights.integers + i);
    const __m512 weight_scales =
        _mm512_permutexvar_ps(group_of_lane, _mm512_loadu_ps(call.weights.scales + i / kGroup));
    for (int r = 0; r < kRows; ++r) {
      const __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), weights,
                                              _mm512_loadu_si512(rows + r * call.row_bytes + i));
      const __m512 scale =
          _mm512_mul_ps(weight_scales, _mm512_loadu_ps(scales + r * floats + i / 4));
      totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, totals[r]);
    }
  }
  const uint64_t groups = (call.padded_inputs / kGroup + 15) / 16 * 16;
  for (int r = 0; r < kRows; ++r) {
    for (uint64_t g = 0; g < groups; g += 16) {
      totals[r] = _mm512_fnmadd_ps(_mm512_loadu_ps(call.weights.minimums + g),
                                   _mm512_loadu_ps(sums + r * floats + g), totals[r]);
    }
    call.output[(first_row + r) * call.output_stride] = _mm512_reduce_add_ps(totals[r]);
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

}  // namespace

void IntegerDotsAvx512Vnni(const IntegerDotCall& call) {
  if (call.group_elements == 16) return AllRows<16>(call);
  AllRows<32>(call);
}

}  // namespace pagoda
