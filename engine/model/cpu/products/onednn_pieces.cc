#include "engine/model/cpu/products/onednn_pieces.h"

#include <algorithm>
#include <cstring>

namespace pagoda {
namespace {

using Factors = MatMul::Factors;
using kernels::ElementType;

constexpr uint64_t kGranule = 64;
// A piece and its results fit into the second-level cache.
constexpr uint64_t kMostOutputs = 512;
constexpr uint64_t kFewestPieces = 16;

uint64_t ToMultiple(uint64_t number, uint64_t granule) {
  return (number + granule - 1) / granule * granule;
}

ElementType TypeOf(const Piece& piece) {
  return piece.factors == Factors::kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat32;
}

uint64_t WholeRuns(uint64_t rows) { return (rows - 1) / MatMul::kMostRows * MatMul::kMostRows; }
// The rows of the last run, rounded up.
uint64_t LastRows(uint64_t rows) { return MatMul::PaddedRows(rows - WholeRuns(rows)); }

}  // namespace

// Behind the unpacked row.
struct OneDnnPieces::Layout {
  uint64_t plain, ordered, results, library;
  uint64_t sum() const { return plain + ordered + results + library; }
};

OneDnnPieces::OneDnnPieces(const ProductInstructions& instructions, uint32_t num_workers)
    : loops_(VectorLoopsFor(instructions.isa)),
      converter_(instructions),
      num_workers_(num_workers) {}

uint64_t OneDnnPieces::PaddedInputRows(uint64_t rows) { return WholeRuns(rows) + LastRows(rows); }

uint64_t OneDnnPieces::PieceOutputs(uint64_t outputs) {
  const uint64_t even = ToMultiple((outputs + kFewestPieces - 1) / kFewestPieces, kGranule);
  return std::min({even, kMostOutputs, outputs});
}

void OneDnnPieces::Prepare(const Piece& piece) {
  std::unique_ptr<SliceKind>& kind = kinds_[{TypeOf(piece), piece.inputs(), piece.count}];
  if (kind == nullptr) {
    kind = std::make_unique<SliceKind>(engine_, TypeOf(piece), piece.inputs(), piece.count,
                                       num_workers_);
  }
  if (piece.num_rows() > MatMul::kMostRows) kind->ForRows(MatMul::kMostRows);
  kind->ForRows(LastRows(piece.num_rows()));
}

SliceKind& OneDnnPieces::KindOf(const Piece& piece) const {
  return *kinds_.at({TypeOf(piece), piece.inputs(), piece.count});
}

OneDnnPieces::Layout OneDnnPieces::LayoutFor(const Piece& piece) const {
  SliceKind& kind = KindOf(piece);
  const uint64_t last = LastRows(piece.num_rows());
  const bool many = piece.num_rows() > MatMul::kMostRows;
  uint64_t library = kind.ForRows(last).scratch_bytes();
  if (many) library = std::max(library, kind.ForRows(MatMul::kMostRows).scratch_bytes());
  const uint64_t rows = many ? MatMul::kMostRows : last;
  const uint64_t element = kernels::ElementBytes(TypeOf(piece));
  // A converted row is written in steps of 64 bytes.
  return {.plain = ToMultiple(piece.count * piece.inputs() * element + 64, 64),
          .ordered = ToMultiple(kind.bytes(), 64),
          .results = ToMultiple(rows * piece.count * sizeof(float), 64),
          .library = library};
}

uint64_t OneDnnPieces::ScratchBytes(const Piece& piece) const {
  return UnpackedRow::AlignedBytes(piece.inputs()) + LayoutFor(piece).sum();
}

bool OneDnnPieces::Run(uint32_t worker, const Piece& piece, const PreparedInput& input,
                       std::byte* scratch) const {
  const Layout layout = LayoutFor(piece);
  std::byte* const plain = scratch + UnpackedRow::AlignedBytes(piece.inputs());
  std::byte* const ordered = plain + layout.plain;
  auto* const results = reinterpret_cast<float*>(ordered + layout.ordered);
  std::byte* const library = ordered + layout.ordered + layout.results;
  Convert(piece, UnpackedRow::In(scratch, piece.inputs()), plain);
  SliceKind& kind = KindOf(piece);
  try {
    const dnnl::memory weights = kind.MemoryAt(ordered);
    kind.Order(plain, weights);
    for (uint64_t first = 0; first < piece.num_rows(); first += MatMul::kMostRows) {
      const uint64_t rows = std::min(MatMul::kMostRows, piece.num_rows() - first);
      Product& product = kind.ForRows(MatMul::PaddedRows(rows));
      const std::byte* const from = input.data + first * input.row_bytes;
      if (!product.Run(worker, from, weights, results, library)) return false;
      Store(piece, first, rows, results);
    }
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

// The piece's rows, contiguous, in the type of its factors. A row of bf16 that is not whole steps
// writes into the next one, which comes later.
void OneDnnPieces::Convert(const Piece& piece, const UnpackedRow& row, std::byte* plain) const {
  const uint64_t inputs = piece.inputs();
  for (uint64_t o = 0; o < piece.count; ++o) {
    if (piece.factors == Factors::kBFloat16) {
      converter_.ToBFloat16(piece.part->type, piece.row(o), inputs, row, plain + o * inputs * 2,
                            nullptr, 64);
    } else {
      converter_.ToFloats(piece.part->type, piece.row(o), inputs, row,
                          reinterpret_cast<float*>(plain) + o * inputs);
    }
  }
}

// Copies [rows][outputs of the piece] to their columns of the output.
void OneDnnPieces::Store(const Piece& piece, uint64_t first_row, uint64_t rows,
                         const float* results) const {
  for (uint64_t r = 0; r < rows; ++r, results += piece.count) {
    float* const target = piece.result(first_row + r);
    if (piece.bias() == nullptr) {
      std::memcpy(target, results, piece.count * sizeof(float));
    } else {
      loops_.add_bias(results, piece.bias(), piece.count, target);
    }
  }
}

}  // namespace pagoda
