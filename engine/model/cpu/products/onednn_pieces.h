#ifndef PAGODA_ENGINE_MODEL_CPU_PRODUCTS_ONEDNN_PIECES_H_
#define PAGODA_ENGINE_MODEL_CPU_PRODUCTS_ONEDNN_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <tuple>

#include "engine/model/cpu/loops/vector_loops.h"
#include "engine/model/cpu/products/piece.h"
#include "engine/model/cpu/products/prepared_inputs.h"
#include "engine/model/cpu/products/product.h"
#include "engine/model/cpu/products/row_converter.h"

namespace pagoda {

// Multiplies pieces by oneDNN's code, for many rows. Keeps the code, which is few: a model has few
// shapes of pieces. Prepare is called on one thread, and what it prepared can then run on all.
class OneDnnPieces {
 public:
  OneDnnPieces(const ProductInstructions& instructions, uint32_t num_workers);

  // The number of rows that an input must have memory for.
  static uint64_t PaddedInputRows(uint64_t rows);
  // The outputs of a piece: whole registers, if the part has them. Does not depend on the number of
  // threads: oneDNN sums pieces of different widths in different orders.
  static uint64_t PieceOutputs(uint64_t outputs);

  // Generates code. Throws dnnl::error.
  void Prepare(const Piece& piece);
  // The memory that Run needs.
  uint64_t ScratchBytes(const Piece& piece) const;
  // False if oneDNN fails. `scratch` is aligned to 64 bytes.
  bool Run(uint32_t worker, const Piece& piece, const PreparedInput& input,
           std::byte* scratch) const;

 private:
  struct Layout;  // The layout of the scratch memory.

  SliceKind& KindOf(const Piece& piece) const;
  Layout LayoutFor(const Piece& piece) const;
  void Convert(const Piece& piece, const UnpackedRow& row, std::byte* plain) const;
  void Store(const Piece& piece, uint64_t first_row, uint64_t rows, const float* results) const;

  const VectorLoops& loops_;
  const RowConverter converter_;
  const uint32_t num_workers_;
  const dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  // By type, inputs and outputs.
  std::map<std::tuple<kernels::ElementType, uint64_t, uint64_t>, std::unique_ptr<SliceKind>> kinds_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_PRODUCTS_ONEDNN_PIECES_H_
