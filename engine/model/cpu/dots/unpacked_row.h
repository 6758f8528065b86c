// Rows of quantised weights and activations, in the form that integer dot products take.
#ifndef PAGODA_ENGINE_MODEL_CPU_DOTS_UNPACKED_ROW_H_
#define PAGODA_ENGINE_MODEL_CPU_DOTS_UNPACKED_ROW_H_

#include <cstddef>
#include <cstdint>

#include "engine/checkpoint/files/tensor.h"

namespace pagoda {

// Loops take 64 elements at a time. Rows are padded to them with integers and scales of 0.
inline constexpr uint64_t kUnpackedStep = 64;
constexpr uint64_t PaddedInputs(uint64_t inputs) {
  return (inputs + kUnpackedStep - 1) / kUnpackedStep * kUnpackedStep;
}

// The elements that share a scale.
constexpr uint64_t GroupElements(TensorType type) {
  return type == TensorType::kQ2_K || type == TensorType::kQ3_K || type == TensorType::kQ6_K ? 16
                                                                                             : 32;
}

// A row of weights: element i of group g is
//   scales[g] * integers[i] - minimums[g].
// Integers are unsigned, because the processors' instructions multiply unsigned by signed bytes.
// The offset of a type with signed integers is part of the minimum.
struct UnpackedRow {
  uint8_t* integers = nullptr;  // [PaddedInputs(inputs)]
  float* scales = nullptr;      // [PaddedInputs(inputs) / 16 + 16], 0 from the last group on.
  float* minimums = nullptr;    // In the same shape, 0 from the last group on.

  static uint64_t Bytes(uint64_t inputs) {
    return PaddedInputs(inputs) + 2 * sizeof(float) * (PaddedInputs(inputs) / 16 + 16);
  }
  // Rounded up, so that memory behind it is aligned too.
  static uint64_t AlignedBytes(uint64_t inputs) { return (Bytes(inputs) + 63) / 64 * 64; }
  // In `memory` of Bytes(inputs) bytes, aligned to 64 bytes. Zeroed, so that the padding is 0.
  static UnpackedRow In(std::byte* memory, uint64_t inputs);
};

// Unpacks a row of `inputs` elements. Leaves the padding as it is. All implementations give the
// same bits. REQUIRES: a quantised type; whole blocks.
using UnpackRow = void (*)(TensorType type, const std::byte* row, uint64_t inputs,
                           const UnpackedRow& to);
void UnpackRowPortable(TensorType type, const std::byte* row, uint64_t inputs,
                       const UnpackedRow& to);
void UnpackRowAvx2(TensorType type, const std::byte* row, uint64_t inputs, const UnpackedRow& to);

// A row of activations, quantised in blocks of 32: element i of block b is about
//   scale_b * integers[i], |integers[i]| <= 127, scale_b = the block's largest magnitude / 127.
// A block with NaN or infinity has the scale NaN; one below 1e-36 has integers of 0.
struct QuantisedRow {
  int8_t* integers = nullptr;  // [PaddedInputs(inputs)]
  float* scales = nullptr;     // [PaddedInputs(inputs) / 4]: each block's scale 8 times.
  float* sums16 = nullptr;     // scale * sum(integers) of each 16 elements, then 16 zeros.
  float* sums32 = nullptr;     // scale * sum(integers) of each 32 elements, then 16 zeros.

  static uint64_t Bytes(uint64_t inputs) {
    const uint64_t padded = PaddedInputs(inputs);
    return 2 * padded + sizeof(float) * (padded / 16 + 16 + padded / 32 + 16 + 16) / 64 * 64;
  }
  // In `memory` of Bytes(inputs) bytes, aligned to 64 bytes.
  static QuantisedRow In(std::byte* memory, uint64_t inputs);
  const float* sums(uint64_t group_elements) const {
    return group_elements == 16 ? sums16 : sums32;
  }
};

// Quantises a row, and zeroes its padding. REQUIRES: `inputs` is a multiple of 32.
using QuantiseRow = void (*)(const float* row, uint64_t inputs, const QuantisedRow& to);
void QuantiseRowPortable(const float* row, uint64_t inputs, const QuantisedRow& to);
void QuantiseRowAvx2(const float* row, uint64_t inputs, const QuantisedRow& to);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_DOTS_UNPACKED_ROW_H_
