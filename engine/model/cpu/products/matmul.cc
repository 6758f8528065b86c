#include "engine/model/cpu/products/matmul.h"

#include <algorithm>
#include <atomic>
#include <dnnl.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/model/cpu/products/dot_pieces.h"
#include "engine/model/cpu/products/onednn_pieces.h"
#include "engine/model/cpu/products/piece.h"
#include "engine/model/cpu/products/prepared_inputs.h"
#include "engine/model/cpu/products/tile_pieces.h"
#include "engine/model/cpu/products/tiles.h"
#include "engine/model/cpu/products/work_queue.h"

namespace pagoda {
namespace {

using kernels::cpu::Execution;
using Factors = MatMul::Factors;

// Dot products of at most this many rows. With AMX, tiles are as fast from the fifth row on.
constexpr uint64_t kMostDotRows = 16;
constexpr uint64_t kMostDotRowsBesideTiles = 4;

// Below this many multiplications, waking threads takes longer than they save.
constexpr uint64_t kSmallestParallelProduct = uint64_t{1} << 18;

// The bits of dots and tiles do not depend on how a product is cut, so it follows the threads.
constexpr uint64_t kPiecesPerThread = 8;
constexpr uint64_t kPieceGranule = 2 * kTileRows;

uint64_t RoundUp(uint64_t number, uint64_t granule) {
  return (number + granule - 1) / granule * granule;
}

InputForm FormOf(ProductWay way, Factors factors) {
  if (way == ProductWay::kTiles) {
    return factors == Factors::kSplit ? InputForm::kSplitTiles : InputForm::kTiles;
  }
  if (factors == Factors::kInteger) return InputForm::kIntegers;
  if (factors == Factors::kBFloat16) return InputForm::kBFloat16;
  return way == ProductWay::kOneDnn ? InputForm::kFloats : InputForm::kAsTheyAre;
}

}  // namespace

class MatMul::State {
 public:
  State(const Execution& execution, const ProductInstructions& instructions)
      : execution_(execution),
        instructions_(instructions),
        dots_(instructions),
        tiles_(instructions),
        onednn_(instructions, execution.threads->num_threads()),
        inputs_(execution, instructions),
        queue_(execution.threads->num_threads()) {}

  bool bfloat16() const { return instructions_.bfloat16(); }

  Factors FactorsOf(TensorType type, ComputeType compute, uint64_t rows) const {
    if (compute == ComputeType::kFloat32) return Factors::kFloat32;
    if (compute == ComputeType::kBFloat16) return Factors::kBFloat16;
    const bool few = rows <= (has_tiles() ? kMostDotRowsBesideTiles : kMostDotRows);
    if (IsQuantised(type)) {
      if (few) return Factors::kInteger;
      return bfloat16() ? Factors::kBFloat16 : Factors::kFloat32;
    }
    if (type == TensorType::kBFloat16 && bfloat16()) return Factors::kBFloat16;
    const bool split = type == TensorType::kFloat16 && has_tiles() && !few;
    return split ? Factors::kSplit : Factors::kFloat32;
  }

  absl::Status MultiplyEach(absl::Span<const ProductCall> calls) {
    pieces_.clear();
    inputs_.Clear();
    uint64_t multiplications = 0;
    for (const ProductCall& call : calls) {
      AddPieces(call);
      multiplications += call.weights->inputs() * call.weights->outputs() * call.input.rows;
    }
    if (absl::Status status = inputs_.Prepare(); !status.ok()) return status;
    scratch_bytes_ = 0;
    for (const Piece& piece : pieces_) {
      scratch_bytes_ = std::max(scratch_bytes_, ScratchBytes(piece));
    }
    queue_.Fill(pieces_.size());
    failed_.store(false, std::memory_order_relaxed);
    if (multiplications < kSmallestParallelProduct) {
      Work(0);
    } else {
      execution_.threads->Run([&](uint32_t worker) { Work(worker); });
    }
    if (failed_.load(std::memory_order_relaxed)) return absl::InternalError("oneDNN: a product");
    return absl::OkStatus();
  }

 private:
  bool has_tiles() const { return instructions_.tiles == TileInstructions::kAmx; }

  ProductWay WayOf(Factors factors, uint64_t rows) const {
    const bool tiles = has_tiles() && (factors == Factors::kBFloat16 || factors == Factors::kSplit);
    if (rows <= (tiles ? kMostDotRowsBesideTiles : kMostDotRows)) return ProductWay::kDots;
    return tiles ? ProductWay::kTiles : ProductWay::kOneDnn;
  }

  // The outputs of a piece.
  uint64_t PieceOutputs(ProductWay way, uint64_t inputs, uint64_t outputs) const {
    if (way == ProductWay::kOneDnn) return OneDnnPieces::PieceOutputs(outputs);
    const uint64_t pieces = kPiecesPerThread * execution_.threads->num_threads();
    const uint64_t even = RoundUp((outputs + pieces - 1) / pieces, kPieceGranule);
    return way == ProductWay::kDots ? even : std::min(even, TilePieces::MostOutputs(inputs));
  }

  void AddPieces(const ProductCall& call) {
    const auto& matrix = static_cast<const StoredWeights&>(*call.weights);
    PAGODA_CHECK(call.input.cols == matrix.inputs() && call.output.cols == matrix.outputs() &&
                     call.input.rows == call.output.rows,
                 "a product's shapes match");
    const uint64_t rows = call.input.rows;
    if (rows == 0) return;
    for (const MatrixPart& part : matrix.parts()) {
      const Factors factors = FactorsOf(part.type, matrix.compute(), rows);
      const ProductWay way = WayOf(factors, rows);
      const uint64_t input_rows =
          way == ProductWay::kOneDnn ? OneDnnPieces::PaddedInputRows(rows) : rows;
      const size_t input = inputs_.Want(call.input, FormOf(way, factors), input_rows);
      const uint64_t size = PieceOutputs(way, matrix.inputs(), part.outputs);
      for (uint64_t first = 0; first < part.outputs; first += size) {
        pieces_.push_back({.matrix = &matrix,
                           .part = &part,
                           .output = &call.output,
                           .first = first,
                           .count = std::min(size, part.outputs - first),
                           .input = input,
                           .factors = factors,
                           .way = way});
        // Workers must not generate code.
        if (way == ProductWay::kOneDnn) onednn_.Prepare(pieces_.back());
      }
    }
  }

  uint64_t ScratchBytes(const Piece& piece) const {
    switch (piece.way) {
      case ProductWay::kDots:
        return DotPieces::ScratchBytes(piece);
      case ProductWay::kTiles:
        return TilePieces::ScratchBytes(piece);
      case ProductWay::kOneDnn:
        break;
    }
    return onednn_.ScratchBytes(piece);
  }

  void Work(uint32_t worker) {
    const OneThread one_thread;
    std::byte* const scratch = execution_.threads->Scratch(worker, scratch_bytes_).data();
    uint32_t visited = 0;
    for (uint64_t unit = 0; (unit = queue_.Take(worker, &visited)) != WorkQueue::kNone;) {
      const Piece& piece = pieces_[unit];
      const PreparedInput& input = inputs_.at(piece.input);
      switch (piece.way) {
        case ProductWay::kDots:
          dots_.Run(piece, input, scratch);
          break;
        case ProductWay::kTiles:
          tiles_.Run(piece, input, scratch);
          break;
        case ProductWay::kOneDnn:
          if (!onednn_.Run(worker, piece, input, scratch)) {
            failed_.store(true, std::memory_order_relaxed);
          }
          break;
      }
    }
  }

  const Execution execution_;
  const ProductInstructions instructions_;
  const DotPieces dots_;
  const TilePieces tiles_;
  OneDnnPieces onednn_;
  PreparedInputs inputs_;
  WorkQueue queue_;
  std::vector<Piece> pieces_;  // The pieces of the current call.
  uint64_t scratch_bytes_ = 0;
  std::atomic<bool> failed_ = false;
};

uint64_t MatMul::PaddedRows(uint64_t rows) {
  if (rows <= 16) return rows;
  return RoundUp(rows, rows <= 64 ? 16 : 64);
}

MatMul::MatMul(const Execution& execution) : MatMul(execution, BestInstructions(execution.isa)) {}
MatMul::MatMul(const Execution& execution, const ProductInstructions& instructions)
    : state_(std::make_unique<State>(execution, instructions)) {}
MatMul::~MatMul() = default;

std::unique_ptr<SlicedMatrix> MatMul::Load(absl::Span<const TensorInfo> matrices,
                                           absl::Span<const float> bias,
                                           ComputeType compute) const {
  PAGODA_CHECK(compute != ComputeType::kBFloat16 || state_->bfloat16(),
               "the processor multiplies bf16");
  auto weights = std::make_unique<StoredWeights>(matrices[0].shape[1], compute, bias);
  for (const TensorInfo& matrix : matrices) weights->Append(matrix);
  return weights;
}

Factors MatMul::FactorsOf(TensorType type, ComputeType compute, uint64_t rows) const {
  return state_->FactorsOf(type, compute, rows);
}

absl::Status MatMul::Multiply(const SlicedMatrix& weights, const RowsView& input,
                              const RowsView& output) {
  const ProductCall call = {.weights = &weights, .input = input, .output = output};
  return MultiplyEach({&call, 1});
}

absl::Status MatMul::MultiplyEach(absl::Span<const ProductCall> calls) {
  // oneDNN's exceptions end here.
  try {
    return state_->MultiplyEach(calls);
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

}  // namespace pagoda
