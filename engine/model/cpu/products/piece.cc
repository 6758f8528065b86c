#include "engine/model/cpu/products/piece.h"

namespace pagoda {
namespace {

// Whether the rows continue the part. The first two rows of a part choose its stride.
bool Continues(const MatrixPart& part, const TensorInfo& rows, uint64_t row_bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(part.data);
  const auto next = reinterpret_cast<uintptr_t>(rows.bytes.data());
  if (rows.type != part.type || next <= begin) return false;
  const uint64_t stride = part.outputs == 1 ? next - begin : part.stride_bytes;
  if (next != begin + part.outputs * stride) return false;
  return rows.shape[0] == 1 || stride == row_bytes;
}

}  // namespace

void StoredWeights::Append(const TensorInfo& matrix) {
  const uint64_t outputs = matrix.shape[0];
  if (outputs == 0) return;
  const uint64_t row_bytes = matrix.bytes.size() / outputs;
  if (!parts_.empty() && Continues(parts_.back(), matrix, row_bytes)) {
    MatrixPart& last = parts_.back();
    if (last.outputs == 1) {
      last.stride_bytes = static_cast<uint64_t>(matrix.bytes.data() - last.data);
    }
    last.outputs += outputs;
  } else {
    parts_.push_back({.type = matrix.type,
                      .data = matrix.bytes.data(),
                      .row_bytes = row_bytes,
                      .stride_bytes = row_bytes,
                      .first_output = outputs_,
                      .outputs = outputs});
  }
  outputs_ += outputs;
}

uint64_t StoredWeights::bytes() const {
  uint64_t sum = 0;
  for (const MatrixPart& part : parts_) sum += part.outputs * part.row_bytes;
  return sum;
}

}  // namespace pagoda
