#ifndef PAGODA_ENGINE_CHECKPOINT_FILES_QUANTISED_BLOCKS_H_
#define PAGODA_ENGINE_CHECKPOINT_FILES_QUANTISED_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "engine/checkpoint/files/tensor.h"

namespace pagoda {

// ggml's blocks of quantised elements as plain arrays: element i of a group is
//   scale * integer - minimum.
// Every product of a scale and an integer is exact in fp32, so an element is rounded at most once,
// in the difference, and any order of these operations gives the same bits.
struct UnpackedBlock {
  static constexpr uint64_t kMostElements = 256;
  static constexpr uint64_t kFewestGroupElements = 16;

  uint64_t group_elements = 32;  // 16 or 32.
  int8_t integers[kMostElements];
  float scales[kMostElements / kFewestGroupElements];
  float minimums[kMostElements / kFewestGroupElements];  // 0 for types without them.
};

// Unpacks one block. REQUIRES: a quantised type; LayoutOf(type).bytes bytes, of any alignment.
void UnpackBlock(TensorType type, const std::byte* block, UnpackedBlock& unpacked);

// Writes `count` blocks as fp32. These are the numbers of the PyPI package gguf
// (gguf.quants.dequantize), to the bit. REQUIRES: as for UnpackBlock.
void DequantiseBlocks(TensorType type, const std::byte* blocks, uint64_t count, float* floats);

// The values of 4 bits in the types that have a table: IQ4_NL and IQ4_XS, and MXFP4 doubled.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_CHECKPOINT_FILES_QUANTISED_BLOCKS_H_
