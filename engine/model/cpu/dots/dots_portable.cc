// The dot products in plain loops.
#include <algorithm>
#include <cstring>

#include "engine/model/cpu/dots/dots.h"
#include "kernels/numeric.h"

namespace pagoda {
namespace {

// Partial sums, added in a fixed order.
constexpr uint64_t kLanes = 8;

float Sum(const float* lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

template <class Weight>
void Dots(const DotCall& call) {
  constexpr uint64_t kPiece = 256;
  for (uint64_t o = 0; o < call.outputs; ++o) {
    const std::byte* const weights = call.weights + o * call.weight_row_bytes;
    for (uint64_t r = 0; r < call.num_rows; ++r) {
      const auto* row = reinterpret_cast<const float*>(call.rows + r * call.row_bytes);
      float lanes[kLanes] = {};
      for (uint64_t first = 0; first < call.inputs; first += kPiece) {
        const uint64_t count = std::min(kPiece, call.inputs - first);
        Weight piece[kPiece];  // The file's elements are not aligned.
        std::memcpy(piece, weights + first * sizeof(Weight), count * sizeof(Weight));
        for (uint64_t i = 0; i < count; ++i) {
          lanes[i % kLanes] += kernels::ToFloat(piece[i]) * row[first + i];
        }
      }
      call.output[r * call.output_stride + o] = Sum(lanes);
    }
  }
}

}  // namespace

const FloatDots kFloatDotsPortable = {
    .float32 = Dots<float>, .float16 = Dots<kernels::Half>, .bfloat16 = Dots<kernels::BFloat16>};

void IntegerDotsPortable(const IntegerDotCall& call) {
  for (uint64_t r = 0; r < call.num_rows; ++r) {
    const int8_t* const row = call.first.integers + r * call.row_bytes;
    const float* const scales = call.first.scales + r * call.row_bytes / sizeof(float);
    const float* const sums =
        call.first.sums(call.group_elements) + r * call.row_bytes / sizeof(float);
    float sum = 0.0f, minimum = 0.0f;
    for (uint64_t first = 0, g = 0; first < call.padded_inputs; first += call.group_elements, ++g) {
      int dot = 0;
      for (uint64_t i = first; i < first + call.group_elements; ++i) {
        dot += call.weights.integers[i] * row[i];
      }
      sum += call.weights.scales[g] * scales[first / 4] * static_cast<float>(dot);
      minimum += call.weights.minimums[g] * sums[g];
    }
    call.output[r * call.output_stride] = sum - minimum;
  }
}

}  // namespace pagoda
