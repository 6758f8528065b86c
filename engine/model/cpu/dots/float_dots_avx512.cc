// Compiled for AVX-512. Calls no inline function of another header except intrinsics: see
// vector_loops_body.h.
#include <immintrin.h>

#include "engine/model/cpu/dots/dots.h"

namespace pagoda {
namespace {

constexpr uint64_t kPrefetchBytes = 4096;
constexpr int kSums = 4;  // Sums per row, so that additions do not wait for each other.

struct Float32 {
  static constexpr uint64_t kBytes = 4;
  static __m512 Load(const std::byte* from) { return _mm512_loadu_ps(from); }
  static __m512 Load(const std::byte* from, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, from);
  }
};
struct Float16 {
  static constexpr uint64_t kBytes = 2;
  static __m512 Load(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static __m512 Load(const std::byte* from, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
  }
};
struct BFloat16 {
  static constexpr uint64_t kBytes = 2;
  static __m512 Widened(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static __m512 Load(const std::byte* from) {
    return Widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static __m512 Load(const std::byte* from, __mmask16 mask) {
    return Widened(_mm256_maskz_loadu_epi16(mask, from));
  }
};

template <class Weight, int kRows>
void DotRows(const DotCall& call, const std::byte* weights, const std::byte* rows, float* output) {
  __m512 sums[kRows][kSums];
  for (auto& sum : sums) {
    for (__m512& part : sum) part = _mm512_setzero_ps();
  }
  const auto row = [&](int r) { return reinterpret_cast<const float*>(rows + r * call.row_bytes); };
  uint64_t i = 0;
  for (; i + 16 * kSums <= call.inputs; i += 16 * kSums) {
    for (uint64_t line = 0; line < kSums * 16 * Weight::kBytes; line += 64) {
      _mm_prefetch(
          reinterpret_cast<const char*>(weights + i * Weight::kBytes + line + kPrefetchBytes),
          _MM_HINT_T0);
    }
    for (int s = 0; s < kSums; ++s) {
      const __m512 factors = Weight::Load(weights + (i + 16 * s) * Weight::kBytes);
      for (int r = 0; r < kRows; ++r) {
        sums[r][s] = _mm512_fmadd_ps(factors, _mm512_loadu_ps(row(r) + i + 16 * s), sums[r][s]);
      }
    }
  }
  for (; i < call.inputs; i += 16) {
    const uint64_t left = call.inputs - i;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xffff : (1u << left) - 1);
    const __m512 factors = Weight::Load(weights + i * Weight::kBytes, mask);
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = _mm512_fmadd_ps(factors, _mm512_maskz_loadu_ps(mask, row(r) + i), sums[r][0]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const __m512 sum =
        _mm512_add_ps(_mm512_add_ps(sums[r][0], sums[r][1]), _mm512_add_ps(sums[r][2], sums[r][3]));
    output[r * call.output_stride] = _mm512_reduce_add_ps(sum);
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

const FloatDots kFloatDotsAvx512 = {
    .float32 = Dots<Float32>, .float16 = Dots<Float16>, .bfloat16 = Dots<BFloat16>};

}  // namespace pagoda
