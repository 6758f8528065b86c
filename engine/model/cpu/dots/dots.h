// Dot products of rows of weights with few rows of activations, compiled for each instruction set.
// They read the weights from memory once, in the file's order.
#ifndef PAGODA_ENGINE_MODEL_CPU_DOTS_DOTS_H_
#define PAGODA_ENGINE_MODEL_CPU_DOTS_DOTS_H_

#include <cstddef>
#include <cstdint>

#include "engine/model/cpu/dots/unpacked_row.h"
#include "kernels/types.h"

namespace pagoda {

// output[r * output_stride + o] = the dot product of row r of the input and row o of the weights,
// with fp32 sums. A result's bits depend on its two rows only.
struct DotCall {
  const std::byte* weights = nullptr;  // Needs no alignment. Memory behind them is prefetched.
  uint64_t weight_row_bytes = 0;
  uint64_t outputs = 0;
  uint64_t inputs = 0;
  const std::byte* rows = nullptr;  // Aligned to their elements.
  uint64_t row_bytes = 0;
  uint64_t num_rows = 0;
  float* output = nullptr;
  uint64_t output_stride = 0;
};
using DotProducts = void (*)(const DotCall& call);

// Weights of fp32, fp16 or bf16 with activations of fp32: the products are exact before they are
// added.
struct FloatDots {
  DotProducts float32;
  DotProducts float16;
  DotProducts bfloat16;
};
extern const FloatDots kFloatDotsPortable;
extern const FloatDots kFloatDotsAvx2;
extern const FloatDots kFloatDotsAvx512;

// Weights and activations of bf16, by the dot product of bf16 pairs.
void BFloat16DotsAvx512(const DotCall& call);

// One unpacked row of weights with quantised rows of activations: output[r * output_stride], r <
// num_rows. Row r begins row_bytes * r behind the first one, as QuantisedRow::In places it.
struct IntegerDotCall {
  UnpackedRow weights;
  uint64_t padded_inputs = 0;  // A multiple of kUnpackedStep.
  uint64_t group_elements = 32;
  QuantisedRow first;
  uint64_t row_bytes = 0;
  uint64_t num_rows = 0;
  float* output = nullptr;
  uint64_t output_stride = 0;
};
using IntegerDots = void (*)(const IntegerDotCall& call);
void IntegerDotsPortable(const IntegerDotCall& call);
void IntegerDotsAvx2(const IntegerDotCall& call);
void IntegerDotsAvxVnni(const IntegerDotCall& call);
void IntegerDotsAvx512Vnni(const IntegerDotCall& call);

// An unpacked row as fp32 (to the bit as DequantiseBlocks) or as bf16. The bf16 numbers are written
// 32 at a time, each 32 `step_bytes` behind the ones before.
using UnpackedToFloats = void (*)(const UnpackedRow& row, uint64_t group_elements, uint64_t inputs,
                                  float* output);
void UnpackedToFloatsAvx2(const UnpackedRow& row, uint64_t group_elements, uint64_t inputs,
                          float* output);
void UnpackedToBFloat16Avx512(const UnpackedRow& row, uint64_t group_elements, uint64_t inputs,
                              std::byte* output, uint64_t step_bytes);

// A row of fp32 or fp16 as bf16, in the same way. If `low` is not null, it gets what the rounding
// lost, as bf16. Writes whole steps: zeros behind the last element.
void Float32ToBFloat16Avx512(const std::byte* row, uint64_t inputs, std::byte* high, std::byte* low,
                             uint64_t step_bytes);
void Float16ToBFloat16Avx512(const std::byte* row, uint64_t inputs, std::byte* high, std::byte* low,
                             uint64_t step_bytes);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_DOTS_DOTS_H_
