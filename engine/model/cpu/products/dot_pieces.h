#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_DOT_PIECES_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_DOT_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "engine/model/cpu/dots/dots.h"
#include "engine/model/cpu/loops/vector_loops.h"
#include "engine/model/cpu/products/piece.h"
#include "engine/model/cpu/products/prepared_inputs.h"
#include "engine/model/cpu/products/row_converter.h"

namespace pagoda {

// Multiplies pieces by dot products, for few rows. Immutable and thread-safe.
class DotPieces {
 public:
  explicit DotPieces(const ProductInstructions& instructions);

  // The memory that Run needs.
  static uint64_t ScratchBytes(const Piece& piece);
  // `scratch` is aligned to 64 bytes.
  void Run(const Piece& piece, const PreparedInput& input, std::byte* scratch) const;

 private:
  void MultiplyConverted(const Piece& piece, const PreparedInput& input, std::byte* scratch) const;
  void MultiplyIntegers(const Piece& piece, const PreparedInput& input, std::byte* scratch) const;

  const VectorLoops& loops_;
  const RowConverter converter_;
  const FloatDots& float_dots_;
  const IntegerDots integer_dots_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_DOT_PIECES_H_
