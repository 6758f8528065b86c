#include "engine/model/cuda/device/device_weights.h"

#include <algorithm>
#include <cstring>

#include "engine/model/weights/tensor_rows.h"

namespace pagoda::cuda {
namespace {

using kernels::ElementBytes;
using kernels::ElementType;

// Bytes per copy. They are enough that the wait after each copy costs little.
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;

}  // namespace

ElementType ExactTypeOf(TensorType type) {
  switch (type) {
    case TensorType::kFloat16:
      return ElementType::kFloat16;
    case TensorType::kBFloat16:
      return ElementType::kBFloat16;
    default:
      break;
  }
  return ElementType::kFloat32;
}

template <class Fill>
absl::Status WeightUpload::Bring(std::byte* target, uint64_t bytes, const Fill& fill) {
  if (absl::Status status = pinned_.Reserve(std::max(bytes, kPieceBytes)); !status.ok()) {
    return status;
  }
  fill(pinned_.data());
  absl::Status status = device_->Copy(target, pinned_.data(), bytes);
  return status.ok() ? device_->Wait() : status;
}

absl::Status WeightUpload::BringMatrix(const TensorInfo& matrix, ElementType type,
                                       std::byte* target) {
  const uint64_t rows = matrix.shape[0];
  const uint64_t row_bytes = matrix.shape[1] * ElementBytes(type);
  const uint64_t rows_at_a_time = std::max<uint64_t>(1, kPieceBytes / row_bytes);
  for (uint64_t first = 0; first < rows; first += rows_at_a_time) {
    const uint64_t count = std::min(rows_at_a_time, rows - first);
    absl::Status status =
        Bring(target + first * row_bytes, count * row_bytes,
              [&](std::byte* pinned) { ReadRows(matrix, first, count, type, pinned); });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<DeviceBuffer>> WeightUpload::Matrix(
    absl::Span<const TensorInfo> matrices, ElementType type) {
  const Key key = {matrices.front().bytes.data(), type};
  if (matrices.size() == 1) {
    const auto found = there_.find(key);
    if (found != there_.end()) {
      if (std::shared_ptr<DeviceBuffer> buffer = found->second.lock()) return buffer;
    }
  }
  const uint64_t row_bytes = matrices.front().shape[1] * ElementBytes(type);
  uint64_t bytes = 0;
  for (const TensorInfo& matrix : matrices) bytes += matrix.shape[0] * row_bytes;
  auto buffer = std::make_shared<DeviceBuffer>(device_, MemorySide::kDevice);
  if (absl::Status status = buffer->Reserve(bytes); !status.ok()) return status;
  std::byte* target = buffer->data();
  for (const TensorInfo& matrix : matrices) {
    if (absl::Status status = BringMatrix(matrix, type, target); !status.ok()) return status;
    target += matrix.shape[0] * row_bytes;
  }
  if (matrices.size() == 1) there_[key] = buffer;
  return buffer;
}

absl::Status WeightUpload::FloatsInto(absl::Span<const float> values, DeviceBuffer& buffer) {
  const uint64_t bytes = values.size() * sizeof(float);
  if (absl::Status status = buffer.Reserve(bytes); !status.ok()) return status;
  return Bring(buffer.data(), bytes,
               [&](std::byte* pinned) { std::memcpy(pinned, values.data(), bytes); });
}

absl::StatusOr<std::shared_ptr<DeviceBuffer>> WeightUpload::Floats(absl::Span<const float> values) {
  auto buffer = std::make_shared<DeviceBuffer>(device_, MemorySide::kDevice);
  if (absl::Status status = FloatsInto(values, *buffer); !status.ok()) return status;
  return buffer;
}

}  // namespace pagoda::cuda
