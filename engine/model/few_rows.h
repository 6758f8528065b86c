#ifndef PAGODA_ENGINE_MODEL_FEW_ROWS_H_
#define PAGODA_ENGINE_MODEL_FEW_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace pagoda {

// output [rows][outputs] = input [rows][inputs] times transposed weights, bf16 in fp32 sums, all
// contiguous. For the rows of a decode step: their multiplications take about as long as the read
// of the weights, so that both have to go on at once; oneDNN's code for so few rows does one after
// the other, in parts.
//
// The weights are in oneDNN's own order, [outputs / 64][inputs / 2][64][2]. While a group of 64
// outputs is multiplied, what lies behind it in memory is fetched, which need not exist.
//
// REQUIRES: BestIsa() is kAvx512Bf16; 1 to kMostFewRows rows, outputs a multiple of 64, inputs of
// 2; addresses aligned to 64 bytes, the input's to 4.
inline constexpr uint64_t kMostFewRows = 16;
void MultiplyFewRows(const std::byte* input, uint64_t rows, uint64_t inputs,
                     const std::byte* weights, uint64_t outputs, float* output);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_FEW_ROWS_H_
