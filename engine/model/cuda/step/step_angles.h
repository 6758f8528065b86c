#ifndef PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_ANGLES_H_
#define PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_ANGLES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/backend.h"
#include "engine/model/backend/model_input.h"
#include "engine/model/cuda/device/compute_device.h"
#include "engine/model/cuda/device/device_weights.h"
#include "engine/model/cuda/kernels/row_kernels.h"

namespace pagoda::cuda {

// The angles of a step's positions, for each of the model's rotary embeddings. Memory is kept from
// step to step. Thread-compatible.
class StepAngles {
 public:
  // Both outlive this.
  StepAngles(ComputeDevice* device, WeightUpload* weights)
      : device_(*device),
        weights_(*weights),
        frequencies_(device, MemorySide::kDevice),
        memory_(device, MemorySide::kDevice) {}

  // In the stream's order. `positions` are the input's, in device memory, and can have more behind
  // them, whose angles are undefined. The places of the angles depend on the size of `positions`
  // only. The configuration is the same in all calls. Errors: OUT_OF_MEMORY; INTERNAL.
  absl::Status Make(const ModelInput& input, absl::Span<const int32_t> positions,
                    const ModelConfig& config);

  // REQUIRES: the shape's rotary embedding is one of the model's. Valid until the next Make.
  const AnglesView& angles(const RotationShape& shape) const {
    return rotaries_[shape.rotary].angles;
  }
  HeadRotation RotationOf(const RotationShape& shape) const;

 private:
  // [cosines, sines][N][half_dim]
  struct Rotary {
    RotaryConfig config;
    uint32_t half_dim = 0;
    uint64_t first_frequency = 0;  // In frequencies_; those of RotaryRange::kLong come behind.
    AnglesView angles;
  };

  // Called once.
  absl::Status BringFrequencies(const ModelConfig& config);
  absl::Status MakeOf(const Rotary& rotary, const ModelInput& input,
                      absl::Span<const int32_t> positions);

  ComputeDevice& device_;
  WeightUpload& weights_;
  DeviceBuffer frequencies_;
  bool has_frequencies_ = false;
  DeviceBuffer memory_;
  std::vector<Rotary> rotaries_;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_ANGLES_H_
