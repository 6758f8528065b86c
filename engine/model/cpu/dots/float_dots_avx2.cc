// Compiled for AVX2 with FMA and F16C. Calls no inline function of another header except
// intrinsics: see vector_loops_body.h.
#include <immintrin.h>

#include "engine/model/cpu/dots/dots.h"

namespace pagoda {
namespace {

constexpr uint64_t kPrefetchBytes = 2048;

struct Float32 {
  static constexpr uint64_t kBytes = 4;
  static __m256 Load(const std::byte* from) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  }
};
struct Float16 {
  static constexpr uint64_t kBytes = 2;
  static __m256 Load(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
};
struct BFloat16 {
  static constexpr uint64_t kBytes = 2;
  static __m256 Load(const std::byte* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

float SumOfLanes(__m256 lanes) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
  return _mm_cvtss_f32(sum);
}

template <class Weight, int kRows>
void DotRows(const DotCall& call, const std::byte* weights, const std::byte* rows, float* output) {
  __m256 sums[kRows][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_ps();
  const auto row = [&](int r) { return reinterpret_cast<const float*>(rows + r * call.row_bytes); };
  uint64_t i = 0;
  for (; i + 16 <= call.inputs; i += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(weights + i * Weight::kBytes + kPrefetchBytes),
                 _MM_HINT_T0);
    for (int half = 0; half < 2; ++half) {
      const __m256 factors = Weight::Load(weights + (i + 8 * half) * Weight::kBytes);
      for (int r = 0; r < kRows; ++r) {
        sums[r][half] =
            _mm256_fmadd_ps(factors, _mm256_loadu_ps(row(r) + i + 8 * half), sums[r][half]);
      }
    }
  }
  if (i < call.inputs) {  // The last ones, behind zeros.
    const uint64_t left = call.inputs - i;
    alignas(32) std::byte last[16 * Weight::kBytes] = {};
    __builtin_memcpy(last, weights + i * Weight::kBytes, left * Weight::kBytes);
    for (int r = 0; r < kRows; ++r) {
      alignas(32) float values[16] = {};
      __builtin_memcpy(values, row(r) + i, left * sizeof(float));
      for (int half = 0; half < 2; ++half) {
        sums[r][half] = _mm256_fmadd_ps(Weight::Load(last + 8 * half * Weight::kBytes),
                                        _mm256_load_ps(values + 8 * half), sums[r][half]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    output[r * call.output_stride] = SumOfLanes(_mm256_add_ps(sums[r][0], sums[r][1]));
  }
}

template <class Weight>
void Dots(const DotCall& call) {
  for (uint64_t o = 0; o < call.outputs; ++o) {
    const std::byte* const weights = call.weights + o * call.weight_row_bytes;
    const std::byte* rows = call.rows;
    float* output = call.output + o;
    uint64_t left = call.num_rows;
    for (; left >= 4; left -= 4, rows += 4 * call.row_bytes, output += 4 * call.output_stride) {
      DotRows<Weight, 4>(call, weights, rows, output);
    }
    for (; left > 0; --left, rows += call.row_bytes, output += call.output_stride) {
      DotRows<Weight, 1>(call, weights, rows, output);
    }
  }
}

}  // namespace

const FloatDots kFloatDotsAvx2 = {
    .float32 = Dots<Float32>, .float16 = Dots<Float16>, .bfloat16 = Dots<BFloat16>};

// A product and a difference in one instruction: see UnpackedBlock about exactness.
void UnpackedToFloatsAvx2(const UnpackedRow& row, uint64_t group_elements, uint64_t inputs,
                          float* output) {
  for (uint64_t i = 0; i < inputs; i += 8) {
    const uint64_t group = i / group_elements;
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row.integers + i));
    const __m256 integers = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    _mm256_storeu_ps(output + i, _mm256_fmsub_ps(integers, _mm256_broadcast_ss(row.scales + group),
                                                 _mm256_broadcast_ss(row.minimums + group)));
  }
}

}  // namespace pagoda
