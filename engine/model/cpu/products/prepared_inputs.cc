#include "engine/model/cpu/products/prepared_inputs.h"

#include <algorithm>
#include <utility>

#include "engine/model/cpu/dots/unpacked_row.h"
#include "engine/model/cpu/products/tiles.h"
#include "kernels/cpu/vectors/convert_rows.h"
#include "kernels/execution/parallel.h"

namespace pagoda {
namespace {

using kernels::ElementType;

uint64_t Aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
uint64_t TileGroups(uint64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

}  // namespace

size_t PreparedInputs::Want(const RowsView& rows, InputForm form, uint64_t least_rows) {
  for (size_t i = 0; i < wanted_.size(); ++i) {
    Wanted& wanted = wanted_[i];
    if (wanted.rows.data == rows.data && wanted.rows.stride == rows.stride &&
        wanted.rows.rows == rows.rows && wanted.rows.cols == rows.cols && wanted.form == form) {
      wanted.least_rows = std::max(wanted.least_rows, least_rows);
      return i;
    }
  }
  wanted_.push_back({.rows = rows, .form = form, .least_rows = least_rows, .prepared = {}});
  return wanted_.size() - 1;
}

// Sets the distance of rows, and returns the bytes of them all.
uint64_t PreparedInputs::BytesOf(Wanted& wanted) const {
  const uint64_t cols = wanted.rows.cols;
  const uint64_t rows = std::max(wanted.rows.rows, wanted.least_rows);
  uint64_t& row_bytes = wanted.prepared.row_bytes;
  switch (wanted.form) {
    case InputForm::kAsTheyAre:
      row_bytes = wanted.rows.stride * sizeof(float);
      return 0;
    case InputForm::kFloats:
      row_bytes = cols * sizeof(float);
      return rows * row_bytes;
    case InputForm::kBFloat16:
      row_bytes = cols * 2;
      return rows * row_bytes;
    case InputForm::kIntegers:
      row_bytes = QuantisedRow::Bytes(cols);
      return rows * row_bytes;
    case InputForm::kTiles:
      row_bytes = TileSteps(cols) * kTileBytes;
      return TileGroups(rows) * row_bytes;
    case InputForm::kSplitTiles:
      row_bytes = TileSteps(cols) * kTileBytes;
      return 2 * TileGroups(rows) * row_bytes;
  }
  return 0;
}

void PreparedInputs::Convert(const Wanted& wanted, std::byte* target) const {
  const RowsView& rows = wanted.rows;
  const uint64_t row_bytes = wanted.prepared.row_bytes;
  if (wanted.form == InputForm::kFloats || wanted.form == InputForm::kBFloat16) {
    const ElementType type =
        wanted.form == InputForm::kFloats ? ElementType::kFloat32 : ElementType::kBFloat16;
    const kernels::cpu::ConvertRows convert = kernels::cpu::FindConversion(
        ElementType::kFloat32, type, execution_.isa, kernels::cpu::Stores::kThroughCaches);
    kernels::cpu::InPieces(execution_, rows.rows, row_bytes, [&](uint64_t begin, uint64_t end) {
      convert({.source = reinterpret_cast<const std::byte*>(rows.data + begin * rows.stride),
               .source_stride_bytes = rows.stride * sizeof(float),
               .target = target + begin * row_bytes,
               .target_stride_bytes = row_bytes,
               .num_rows = end - begin,
               .row_elements = rows.cols},
              /*scale=*/1.0f);
    });
    return;
  }
  if (wanted.form == InputForm::kIntegers) {
    const QuantiseRow quantise =
        instructions_.isa >= kernels::cpu::Isa::kAvx2 ? QuantiseRowAvx2 : QuantiseRowPortable;
    kernels::cpu::InPieces(execution_, rows.rows, row_bytes, [&](uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; ++r) {
        quantise(rows.data + r * rows.stride, rows.cols,
                 QuantisedRow::In(target + r * row_bytes, rows.cols));
      }
    });
    return;
  }
  const uint64_t groups = TileGroups(rows.rows);
  std::byte* const low =
      wanted.form == InputForm::kSplitTiles ? target + groups * row_bytes : nullptr;
  kernels::cpu::InPieces(execution_, groups, row_bytes, [&](uint64_t begin, uint64_t end) {
    for (uint64_t g = begin; g < end; ++g) {
      OrderTileInput({.rows = rows.data + g * kTileRows * rows.stride,
                      .stride = rows.stride,
                      .num_rows = std::min(kTileRows, rows.rows - g * kTileRows),
                      .inputs = rows.cols,
                      .high = target + g * row_bytes,
                      .low = low == nullptr ? nullptr : low + g * row_bytes});
    }
  });
}

absl::Status PreparedInputs::Prepare() {
  uint64_t bytes = 0;
  for (Wanted& wanted : wanted_) bytes += Aligned(BytesOf(wanted));
  if (memory_.bytes() < bytes) {
    absl::StatusOr<HostMemory> larger = HostMemory::Allocate(bytes);
    if (!larger.ok()) return larger.status();
    memory_ = *std::move(larger);
  }
  std::byte* target = memory_.data();
  for (Wanted& wanted : wanted_) {
    PreparedInput& prepared = wanted.prepared;
    if (wanted.form == InputForm::kAsTheyAre) {
      prepared.data = reinterpret_cast<const std::byte*>(wanted.rows.data);
      continue;
    }
    prepared.data = target;
    if (wanted.form == InputForm::kSplitTiles) {
      prepared.low = target + TileGroups(wanted.rows.rows) * prepared.row_bytes;
    }
    Convert(wanted, target);
    target += Aligned(BytesOf(wanted));
  }
  return absl::OkStatus();
}

}  // namespace pagoda
