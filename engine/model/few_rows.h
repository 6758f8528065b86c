#ifndef PAGODA_ENGINE_MODEL_FEW_ROWS_H_
#define PAGODA_ENGINE_MODEL_FEW_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace pagoda {

// output [rows][outputs] = input [rows][inputs] times transposed weights, bf16 with fp32 sums, all
// contiguous. For the rows of a decode step, multiplying takes about as long as reading the
// weights, so both have to overlap. oneDNN's code for so few rows alternates between the two.
//
// The weights are in oneDNN's order, [outputs / 64][inputs / 2][64][2]. While it multiplies a group
// of 64 outputs, it prefetches the memory behind the group, which need not exist.
//
// REQUIRES: BestIsa() is kAvx512Bf16; 1 to kMostFewRows rows; outputs a multiple of 64, inputs of
// 2; addresses aligned to 64 bytes, the input's to 4.
inline constexpr uint64_t kMostFewRows = 16;
void MultiplyFewRows(const std::byte* input, uint64_t rows, uint64_t inputs,
                     const std::byte* weights, uint64_t outputs, float* output);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_FEW_ROWS_H_
