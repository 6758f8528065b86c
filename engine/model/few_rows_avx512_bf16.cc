// Compiled for AVX-512 with BF16. Calls no inline function of another header except intrinsics: see
// vector_loops_body.h.
#include "engine/model/few_rows.h"

#include <immintrin.h>

namespace pagoda {
namespace {

constexpr uint64_t kGroup = 64;          // Outputs that are multiplied side by side,
constexpr int kRegisters = 4;            // in registers of 16.
constexpr uint64_t kPassRows = 6;        // 24 sums, 4 registers of weights, one of an input.
constexpr uint64_t kPairBytes = 64 * 4;  // A group's weights for one pair of inputs.

// Up to kPassRows rows times one group.
struct Pass {
  const uint32_t* input;  // Pairs of bf16.
  uint64_t input_stride;  // In pairs.
  uint64_t pairs;
  const std::byte* weights;
  const char* next;          // The memory to prefetch meanwhile,
  uint64_t lines_each_pair;  // this number of lines for each pair of inputs.
  float* output;
  uint64_t output_stride;
};

template <int kRows>
void Multiply(const Pass& pass) {
  __m512 sums[kRows][kRegisters];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kRegisters; ++i) sums[r][i] = _mm512_setzero_ps();
  }
  const std::byte* weights = pass.weights;
  const char* next = pass.next;
  for (uint64_t k = 0; k < pass.pairs; ++k, weights += kPairBytes) {
    __m512bh group[kRegisters];
    for (int i = 0; i < kRegisters; ++i) {
      group[i] = reinterpret_cast<__m512bh>(_mm512_load_si512(weights + 64 * i));
    }
    for (int r = 0; r < kRows; ++r) {
      const auto pair = reinterpret_cast<__m512bh>(
          _mm512_set1_epi32(static_cast<int>(pass.input[r * pass.input_stride + k])));
      for (int i = 0; i < kRegisters; ++i) {
        sums[r][i] = _mm512_dpbf16_ps(sums[r][i], pair, group[i]);
      }
    }
    for (uint64_t line = 0; line < pass.lines_each_pair; ++line, next += 64) {
      _mm_prefetch(next, _MM_HINT_T1);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kRegisters; ++i) {
      _mm512_storeu_ps(pass.output + r * pass.output_stride + 16 * i, sums[r][i]);
    }
  }
}

constexpr void (*kPasses[])(const Pass&) = {nullptr,     Multiply<1>, Multiply<2>, Multiply<3>,
                                            Multiply<4>, Multiply<5>, Multiply<6>};

}  // namespace

void MultiplyFewRows(const std::byte* input, uint64_t rows, uint64_t inputs,
                     const std::byte* weights, uint64_t outputs, float* output) {
  const uint64_t pairs = inputs / 2;
  const uint64_t num_passes = (rows + kPassRows - 1) / kPassRows;
  for (uint64_t first = 0; first < outputs; first += kGroup, weights += pairs * kPairBytes) {
    const char* next = reinterpret_cast<const char*>(weights + pairs * kPairBytes);
    for (uint64_t p = 0; p < num_passes; ++p) {
      const uint64_t row = rows * p / num_passes;
      const uint64_t end = rows * (p + 1) / num_passes;
      // Each pass prefetches its share of the 4 lines of a pair.
      const uint64_t lines = 4 * (p + 1) / num_passes - 4 * p / num_passes;
      kPasses[end - row]({.input = reinterpret_cast<const uint32_t*>(input) + row * pairs,
                          .input_stride = pairs,
                          .pairs = pairs,
                          .weights = weights,
                          .next = next,
                          .lines_each_pair = lines,
                          .output = output + row * outputs + first,
                          .output_stride = outputs});
      next += lines * pairs * 64;
    }
  }
}

}  // namespace pagoda
