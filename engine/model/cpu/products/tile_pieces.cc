#include "engine/model/cpu/products/tile_pieces.h"

#include <algorithm>
#include <cstring>

#include "engine/model/cpu/products/tiles.h"

namespace pagoda {
namespace {

using Factors = MatMul::Factors;

constexpr uint64_t kMostTileBytes = 1 << 20;
constexpr uint64_t kLineBytes = 64;  // An output's inputs in a tile.

uint64_t GroupBytes(uint64_t inputs) { return TileSteps(inputs) * kTileBytes; }
uint64_t Groups(const Piece& piece) { return (piece.count + kTileRows - 1) / kTileRows; }
uint64_t PanelBytes(const Piece& piece) { return Groups(piece) * GroupBytes(piece.inputs()); }

}  // namespace

uint64_t TilePieces::MostOutputs(uint64_t inputs) {
  const uint64_t pairs = kMostTileBytes / (2 * GroupBytes(inputs));
  return std::max<uint64_t>(pairs, 1) * 2 * kTileRows;
}

uint64_t TilePieces::ScratchBytes(const Piece& piece) {
  const uint64_t panels = piece.factors == Factors::kSplit ? 2 : 1;
  return UnpackedRow::AlignedBytes(piece.inputs()) + panels * PanelBytes(piece);
}

void TilePieces::Run(const Piece& piece, const PreparedInput& input, std::byte* scratch) const {
  const uint64_t inputs = piece.inputs();
  const uint64_t group_bytes = GroupBytes(inputs);
  const UnpackedRow row = UnpackedRow::In(scratch, inputs);
  std::byte* const panel = scratch + UnpackedRow::AlignedBytes(inputs);
  std::byte* const low = piece.factors == Factors::kSplit ? panel + PanelBytes(piece) : nullptr;
  for (uint64_t o = 0; o < Groups(piece) * kTileRows; ++o) {
    const uint64_t at = o / kTileRows * group_bytes + o % kTileRows * kLineBytes;
    std::byte* const low_at = low == nullptr ? nullptr : low + at;
    if (o < piece.count) {
      converter_.ToBFloat16(piece.part->type, piece.row(o), inputs, row, panel + at, low_at,
                            kTileBytes);
      continue;
    }
    // Memory from before could be NaN, which would reach no result, but be slow.
    for (uint64_t s = 0; s < group_bytes; s += kTileBytes) {
      std::memset(panel + at + s, 0, kLineBytes);
      if (low != nullptr) std::memset(low_at + s, 0, kLineBytes);
    }
  }
  MultiplyTiles({.weights = panel,
                 .weights_low = low,
                 .input = input.data,
                 .input_low = input.low,
                 .steps = TileSteps(inputs),
                 .outputs = piece.count,
                 .num_rows = piece.num_rows(),
                 .output = piece.result(0),
                 .output_stride = piece.output->stride,
                 .bias = piece.bias()});
}

}  // namespace pagoda
