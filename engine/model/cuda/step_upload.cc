#include "engine/model/cuda/step_upload.h"

#include <algorithm>
#include <cstring>

namespace pagoda::cuda {
namespace {

// The alignment of each array; plans need 16.
constexpr uint64_t kAlignment = 64;

}  // namespace

uint64_t StepUpload::Allocate(uint64_t bytes) {
  const uint64_t offset = total_bytes_;
  total_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

template <class T>
StepUpload::Place StepUpload::Add(const std::vector<T>& values) {
  const uint64_t bytes = values.size() * sizeof(T);
  const Place place = {.offset_bytes = Allocate(bytes), .size = values.size()};
  pieces_.push_back({values.data(), place.offset_bytes, bytes});
  return place;
}

void StepUpload::MakePlans(const ModelInput& input, const ModelConfig& config) {
  plans_.clear();
  for (const LayerConfig& layer : config.layers) {
    const auto window = std::find_if(input.windows.begin(), input.windows.end(),
                                     [&](const auto& w) { return w.window == layer.window; });
    const auto index = static_cast<uint32_t>(window - input.windows.begin());
    if (std::any_of(plans_.begin(), plans_.end(), [&](const Plan& plan) {
          return plan.window_index == index && plan.num_kv_heads == layer.num_kv_heads;
        })) {
      continue;
    }
    Plan& made = plans_.emplace_back();
    made.window_index = index;
    made.num_kv_heads = layer.num_kv_heads;
    if (layer.window != kFullAttention) made.mask.window_tokens = layer.window.value();
    made.plan = kernels::cuda::PlanForCuda({.query_starts = input.query_starts,
                                            .context_lengths = input.context_lengths,
                                            .mask = made.mask,
                                            .num_kv_heads = layer.num_kv_heads},
                                           config.num_heads,
                                           {.num_multiprocessors = device_->num_multiprocessors()});
    made.capacity = kernels::cuda::CapacityFor(made.plan, config.num_heads);
    made.offset_bytes = Allocate(kernels::cuda::PlanBytes(made.capacity));
  }
}

absl::Status StepUpload::Upload(const ModelInput& input, const ModelConfig& config) {
  total_bytes_ = 0;
  pieces_.clear();
  tokens_ = Add(input.tokens);
  positions_ = Add(input.positions);
  query_starts_ = Add(input.query_starts);
  context_lengths_ = Add(input.context_lengths);
  draws_ = Add(input.draws);
  windows_.clear();
  for (const ModelInput::Window& window : input.windows) {
    windows_.push_back({Add(window.token_slots), Add(window.block_tables)});
  }
  MakePlans(input, config);

  for (DeviceBuffer* buffer : {&pinned_, &memory_}) {
    absl::Status status = buffer->Grow(total_bytes_);
    if (!status.ok()) return status;
  }
  for (const Piece& piece : pieces_) {
    if (piece.bytes == 0) continue;
    std::memcpy(pinned_.data() + piece.offset_bytes, piece.source, piece.bytes);
  }
  for (const Plan& plan : plans_) {
    absl::Status status = kernels::cuda::EncodePlan(
        plan.plan, config.num_heads, plan.capacity,
        {pinned_.data() + plan.offset_bytes, kernels::cuda::PlanBytes(plan.capacity)});
    if (!status.ok()) return status;
  }
  return device_->Copy(memory_.data(), pinned_.data(), total_bytes_);
}

}  // namespace pagoda::cuda
