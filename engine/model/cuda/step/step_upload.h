#ifndef PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_UPLOAD_H_
#define PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_UPLOAD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/model/backend/model_input.h"
#include "engine/model/cuda/device/compute_device.h"
#include "kernels/attention_mask.h"
#include "kernels/cuda/attention.h"
#include "pools/types.h"

namespace pagoda::cuda {

// The arrays of a step's input that kernels read, and the plans of attention. They are in one piece
// of device memory, which one copy from pinned memory fills. Both pieces of memory are kept from
// step to step and grow to powers of two. Thread-compatible.
class StepUpload {
 public:
  explicit StepUpload(ComputeDevice* device)
      : device_(device),
        pinned_(device, MemorySide::kPinned),
        memory_(device, MemorySide::kDevice) {}

  // Makes a plan for each window and number of KV heads of the model's layers, and starts the copy,
  // in the stream's order. `input` is not used after the return. REQUIRES: the previous step's copy
  // has ended. Errors: OUT_OF_MEMORY; INTERNAL.
  absl::Status Upload(const ModelInput& input, const ModelConfig& config);
  // The same for a step that can be replayed. The arrays are as large as for `rows` sequences of
  // one token. Table strides and the plans' capacities are rounded up, so that few shapes occur.
  // The sequences behind those of the input have token 0 at position 0, no place in the cache, and
  // no attention. REQUIRES: each sequence has one token, and `rows` is at least their number.
  absl::Status UploadRounded(const ModelInput& input, const ModelConfig& config, uint64_t rows);

  // The sizes of all arrays, table strides and capacities. Steps of equal shapes have their arrays
  // at the same places in memory, and their kernels' grids are equal.
  const std::vector<uint64_t>& shape() const { return shape_; }

  // The arrays of ModelInput as spans of device memory, valid until the next Upload.
  absl::Span<const TokenId> tokens() const { return Of<TokenId>(tokens_); }
  absl::Span<const int32_t> positions() const { return Of<int32_t>(positions_); }
  absl::Span<const int32_t> query_starts() const { return Of<int32_t>(query_starts_); }
  absl::Span<const int32_t> context_lengths() const { return Of<int32_t>(context_lengths_); }
  absl::Span<const TokenDraw> draws() const { return Of<TokenDraw>(draws_); }
  absl::Span<const int64_t> token_slots(uint32_t window) const {
    return Of<int64_t>(windows_[window].token_slots);
  }
  absl::Span<const int32_t> block_tables(uint32_t window) const {
    return Of<int32_t>(windows_[window].block_tables);
  }
  uint64_t block_table_stride(uint32_t window) const { return windows_[window].stride; }

  struct Plan {
    uint32_t window_index = 0;
    uint32_t num_kv_heads = 0;
    kernels::AttentionMask mask;
    kernels::AttentionPlan plan;
    kernels::cuda::PlanCapacity capacity;
    uint64_t offset_bytes = 0;  // In memory_.
  };
  absl::Span<const Plan> plans() const { return plans_; }
  const std::byte* Encoded(const Plan& plan) const { return memory_.data() + plan.offset_bytes; }

 private:
  // The position of an array in memory_.
  struct Place {
    uint64_t offset_bytes = 0;
    uint64_t size = 0;
  };
  struct Window {
    Place token_slots;
    Place block_tables;
    uint64_t stride = 0;  // The row stride of block_tables, in elements.
  };
  // An array to be copied.
  struct Piece {
    const void* source = nullptr;
    uint64_t offset_bytes = 0;
    uint64_t bytes = 0;
  };
  // Bytes behind an array, all of one value.
  struct Padding {
    uint64_t offset_bytes = 0;
    uint64_t bytes = 0;
    uint8_t value = 0;
  };

  template <class T>
  absl::Span<const T> Of(const Place& place) const {
    return {reinterpret_cast<const T*>(memory_.data() + place.offset_bytes), place.size};
  }
  // `rows` is 0 for steps that cannot be replayed.
  absl::Status Upload(const ModelInput& input, const ModelConfig& config, uint64_t rows);
  uint64_t Allocate(uint64_t bytes);
  // Room for `size` values, or as many as there are if that is more.
  template <class T>
  Place Add(const std::vector<T>& values, uint64_t size = 0, uint8_t padding = 0);
  Window AddWindow(const ModelInput::Window& window, uint64_t sequences, uint64_t rows);
  void MakePlans(const ModelInput& input, const ModelConfig& config, uint64_t rows);

  ComputeDevice* const device_;
  DeviceBuffer pinned_;
  DeviceBuffer memory_;

  // The state of the current step.
  uint64_t total_bytes_ = 0;
  std::vector<Piece> pieces_;
  std::vector<Padding> paddings_;
  std::vector<int32_t> query_starts_values_;
  std::vector<uint64_t> shape_;
  Place tokens_, positions_, query_starts_, context_lengths_, draws_;
  std::vector<Window> windows_;
  std::vector<Plan> plans_;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_UPLOAD_H_
