#include "engine/model/cuda/products/converted_rows.h"

#include <algorithm>

#include "engine/model/cuda/kernels/row_kernels.h"
#include "kernels/cuda/device/runtime.h"

namespace pagoda::cuda {

using kernels::ElementBytes;
using kernels::ElementType;
using kernels::cuda::StatusOf;

absl::Status ConvertedRows::Convert(ElementType type, const RowsView& rows, uint64_t room,
                                    RowsView* converted) {
  *converted = rows;
  if (rows.type == type) return absl::OkStatus();
  absl::Status status = memory_.Grow(room * rows.cols * ElementBytes(type));
  if (!status.ok()) return status;
  *converted = {.data = memory_.as<float>(),
                .stride = rows.cols,
                .rows = rows.rows,
                .cols = rows.cols,
                .room = room,
                .type = type};
  return StatusOf("rounding", rows.type == ElementType::kFloat32
                                  ? LaunchRound(type, rows, converted->data, device_.stream())
                                  : LaunchWiden(rows, *converted, device_.stream()));
}

absl::Status ConvertedRows::ForAttention(ElementType type, AttentionRows* rows) {
  const RowsView queries = rows->queries;
  const RowsView output = rows->output;
  const auto contiguous = [&](const RowsView& like, uint64_t offset_bytes) {
    return RowsView{.data = reinterpret_cast<float*>(memory_.data() + offset_bytes),
                    .stride = like.cols,
                    .rows = like.rows,
                    .cols = like.cols,
                    .type = type};
  };
  const auto bytes_of = [&](const RowsView& like) {
    return like.type == type ? 0 : (like.rows * like.cols * ElementBytes(type) + 15) / 16 * 16;
  };
  // Outputs overwrite converted queries of the same size.
  const uint64_t behind =
      output.cols == queries.cols && queries.type != type ? 0 : bytes_of(queries);
  absl::Status status = memory_.Grow(std::max(bytes_of(queries), behind + bytes_of(output)));
  if (!status.ok()) return status;
  if (output.type != type) rows->output = contiguous(output, behind);
  if (queries.type == type) return absl::OkStatus();
  rows->queries = contiguous(queries, 0);
  return StatusOf("rounding", LaunchRound(type, queries, memory_.data(), device_.stream()));
}

}  // namespace pagoda::cuda
