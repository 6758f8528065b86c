// Products of bf16 with many rows, by AMX: registers that are tiles of 16 rows of 64 bytes.
#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_TILES_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_TILES_H_

#include <cstddef>
#include <cstdint>

namespace pagoda {

// Weights are the first factor of a tile product, so they keep the order of their rows: a group of
// 16 outputs is [inputs / 32][16 outputs][32 inputs], and a group of 16 rows of activations is
// [inputs / 32][16 pairs of inputs][16 rows][2]. Both are padded with zeros to whole tiles.
inline constexpr uint64_t kTileRows = 16;
inline constexpr uint64_t kTileInputs = 32;
inline constexpr uint64_t kTileBytes = 1024;
constexpr uint64_t TileSteps(uint64_t inputs) { return (inputs + kTileInputs - 1) / kTileInputs; }

// A number of fp32 is about the sum of two of bf16, high + low, with an error of 2^-17 of it at
// most; one of fp16 is exactly that sum.

// Orders up to 16 rows of fp32 as a group. Without `low`, it writes only the rounded numbers.
struct TileInput {
  const float* rows = nullptr;
  uint64_t stride = 0;
  uint64_t num_rows = 0;
  uint64_t inputs = 0;
  std::byte* high = nullptr;  // [TileSteps(inputs)][kTileBytes], aligned to 64 bytes.
  std::byte* low = nullptr;
};
void OrderTileInput(const TileInput& input);

// output[r * output_stride + o] = bias[o] + the dot product of row r and output o.
struct TileCall {
  const std::byte* weights = nullptr;      // [groups of outputs][steps][kTileBytes]
  const std::byte* weights_low = nullptr;  // Null: none. Both have low parts, or neither.
  const std::byte* input = nullptr;        // [groups of rows][steps][kTileBytes]
  const std::byte* input_low = nullptr;
  uint64_t steps = 0;
  uint64_t outputs = 0;
  uint64_t num_rows = 0;
  float* output = nullptr;
  uint64_t output_stride = 0;
  const float* bias = nullptr;  // Null: none.
};
// The sums are fp32. With low parts it adds high * high, low * high and high * low. A result's bits
// depend on its row and its output only. REQUIRES: TilesAreUsable().
void MultiplyTiles(const TileCall& call);

// Whether the processor has AMX for bf16, and the system lets this process use it. It asks the
// system once; the permission holds for all threads.
bool TilesAreUsable();

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_TILES_H_
