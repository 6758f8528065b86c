#ifndef PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_SAMPLING_H_
#define PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_SAMPLING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/model/backend/rows_view.h"
#include "engine/model/cuda/device/compute_device.h"
#include "engine/words/token_draw.h"

namespace pagoda::cuda {

// Chooses a step's tokens on the device. Keeps its memory from step to step. Thread-compatible.
class StepSampling {
 public:
  explicit StepSampling(ComputeDevice* device)
      : device_(*device),
        scratch_(device, MemorySide::kDevice),
        tokens_(device, MemorySide::kDevice),
        pinned_tokens_(device, MemorySide::kPinned) {}

  // Whether a step's tokens can be chosen here: a row wants it, and the vocabulary is not too
  // large.
  static bool CanDraw(absl::Span<const TokenDraw> draws, uint64_t vocab_size);

  // Starts the choice and the copy of its result, in the stream's order. `draws` are the step's, by
  // row, and `device_draws` the same in device memory. Errors: OUT_OF_MEMORY; INTERNAL.
  absl::Status Draw(const RowsView& logits, absl::Span<const TokenDraw> draws,
                    const TokenDraw* device_draws);

  // By row: the token, kNoNumber or kNotDrawn. Valid when the stream has been waited for, until the
  // next Draw.
  absl::Span<const uint32_t> tokens() const { return {pinned_tokens_.as<uint32_t>(), rows_}; }

 private:
  ComputeDevice& device_;
  DeviceBuffer scratch_;
  DeviceBuffer tokens_;
  DeviceBuffer pinned_tokens_;
  uint64_t rows_ = 0;  // The rows of the last step.
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_SAMPLING_H_
