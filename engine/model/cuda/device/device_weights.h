#ifndef PAGODA_ENGINE_MODEL_CUDA_DEVICE_DEVICE_WEIGHTS_H_
#define PAGODA_ENGINE_MODEL_CUDA_DEVICE_DEVICE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/backend/backend.h"
#include "engine/model/cuda/device/compute_device.h"
#include "kernels/types.h"

namespace pagoda::cuda {

// The forms of the backend's weights.
struct DeviceEmbedding : EmbeddingWeights {
  kernels::ElementType type = kernels::ElementType::kFloat32;
  std::shared_ptr<DeviceBuffer> table;  // Shared with the head if they are tied.
};

struct DeviceVector : VectorWeights {
  std::shared_ptr<DeviceBuffer> values;
};

class DeviceLinear : public LinearWeights {
 public:
  DeviceLinear(uint64_t inputs, uint64_t outputs) : inputs_(inputs), outputs_(outputs) {}
  uint64_t inputs() const override { return inputs_; }
  uint64_t outputs() const override { return outputs_; }

  kernels::ElementType type = kernels::ElementType::kFloat32;
  std::shared_ptr<DeviceBuffer> matrix;  // [outputs][inputs]; shared if it is tied.
  std::shared_ptr<DeviceBuffer> bias;    // [outputs], or null.

 private:
  const uint64_t inputs_;
  const uint64_t outputs_;
};

inline const float* ValuesOf(const VectorWeights& weights) {
  return static_cast<const DeviceVector&>(weights).values->as<float>();
}

// Copies a checkpoint's numbers into device memory, through a piece of pinned memory.
// Thread-compatible.
class WeightUpload {
 public:
  explicit WeightUpload(ComputeDevice* device)
      : device_(device), pinned_(device, MemorySide::kPinned) {}

  // Stacks the matrices, [rows of all][cols], as fp32, fp16 or bf16. A single matrix that is
  // already there in that type is not copied again: an embedding and its tied head share ownership
  // of the memory. REQUIRES: the same number of columns. Errors: OUT_OF_MEMORY; INTERNAL.
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Matrix(absl::Span<const TensorInfo> matrices,
                                                       kernels::ElementType type);
  absl::StatusOr<std::shared_ptr<DeviceBuffer>> Floats(absl::Span<const float> values);
  // The same into an existing buffer. Waits for everything in the stream.
  absl::Status FloatsInto(absl::Span<const float> values, DeviceBuffer& buffer);

 private:
  using Key = std::pair<const std::byte*, kernels::ElementType>;

  // Fills `bytes` of pinned memory with `fill(target)`, copies them, and waits.
  template <class Fill>
  absl::Status Bring(std::byte* target, uint64_t bytes, const Fill& fill);
  absl::Status BringMatrix(const TensorInfo& matrix, kernels::ElementType type, std::byte* target);

  ComputeDevice* const device_;
  DeviceBuffer pinned_;
  std::map<Key, std::weak_ptr<DeviceBuffer>> there_;  // Single matrices.
};

// The type in which a tensor's numbers lose nothing.
kernels::ElementType ExactTypeOf(TensorType type);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_DEVICE_DEVICE_WEIGHTS_H_
