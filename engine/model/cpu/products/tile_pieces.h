#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_TILE_PIECES_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_TILE_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "engine/model/cpu/products/piece.h"
#include "engine/model/cpu/products/prepared_inputs.h"
#include "engine/model/cpu/products/row_converter.h"

namespace pagoda {

// Multiplies pieces by tiles (tiles.h), for many rows. Immutable and thread-safe.
class TilePieces {
 public:
  explicit TilePieces(const ProductInstructions& instructions) : converter_(instructions) {}

  // The most outputs of a piece, whose weights stay in the second-level cache while all rows are
  // multiplied. A multiple of 2 * kTileRows.
  static uint64_t MostOutputs(uint64_t inputs);
  // The memory that Run needs.
  static uint64_t ScratchBytes(const Piece& piece);
  // `scratch` is aligned to 64 bytes.
  void Run(const Piece& piece, const PreparedInput& input, std::byte* scratch) const;

 private:
  const RowConverter converter_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_TILE_PIECES_H_
