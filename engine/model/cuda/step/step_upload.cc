#include "engine/model/cuda/step/step_upload.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace pagoda::cuda {
namespace {

using kernels::cuda::PlanCapacity;

// The alignment of each array; plans need 16.
constexpr uint64_t kAlignment = 64;

// The capacity for the plans of many steps of `rows` sequences of one token. As contexts grow, the
// number of items changes within a power of two.
PlanCapacity Rounded(PlanCapacity capacity, uint64_t rows) {
  const auto most_rows = static_cast<uint32_t>(rows);
  capacity.items = std::max(std::bit_ceil(capacity.items), most_rows);
  if (capacity.partials == 0) return capacity;
  // Each item of one token has one partial row, or none.
  capacity.partials = capacity.items;
  capacity.merged_rows = most_rows;
  return capacity;
}

}  // namespace

uint64_t StepUpload::Allocate(uint64_t bytes) {
  const uint64_t offset = total_bytes_;
  total_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

template <class T>
StepUpload::Place StepUpload::Add(const std::vector<T>& values, uint64_t size, uint8_t padding) {
  const uint64_t bytes = values.size() * sizeof(T);
  const Place place = {.offset_bytes = Allocate(std::max(bytes, size * sizeof(T))),
                       .size = std::max<uint64_t>(values.size(), size)};
  pieces_.push_back({values.data(), place.offset_bytes, bytes});
  if (size > values.size()) {
    paddings_.push_back({place.offset_bytes + bytes, size * sizeof(T) - bytes, padding});
  }
  return place;
}

StepUpload::Window StepUpload::AddWindow(const ModelInput::Window& window, uint64_t sequences,
                                         uint64_t rows) {
  constexpr uint8_t kNowhere = 0xff;  // Places of -1.
  Window added = {.token_slots = Add(window.token_slots, rows, kNowhere),
                  .block_tables = {},
                  .stride = window.block_table_stride};
  if (rows == 0) {
    added.block_tables = Add(window.block_tables);
    return added;
  }
  // Nothing reads behind a row's entries, nor the rows behind those of the input.
  added.stride = std::bit_ceil(std::max<uint64_t>(window.block_table_stride, 1));
  const uint64_t row_bytes = added.stride * sizeof(int32_t);
  added.block_tables = {.offset_bytes = Allocate(rows * row_bytes), .size = rows * added.stride};
  for (uint64_t s = 0; s < sequences; ++s) {
    pieces_.push_back({window.block_tables.data() + s * window.block_table_stride,
                       added.block_tables.offset_bytes + s * row_bytes,
                       window.block_table_stride * sizeof(int32_t)});
  }
  return added;
}

void StepUpload::MakePlans(const ModelInput& input, const ModelConfig& config, uint64_t rows) {
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
    if (rows != 0) made.capacity = Rounded(made.capacity, rows);
    made.offset_bytes = Allocate(kernels::cuda::PlanBytes(made.capacity));
  }
}

absl::Status StepUpload::Upload(const ModelInput& input, const ModelConfig& config) {
  return Upload(input, config, /*rows=*/0);
}

absl::Status StepUpload::UploadRounded(const ModelInput& input, const ModelConfig& config,
                                       uint64_t rows) {
  PAGODA_CHECK(input.context_lengths.size() == input.tokens.size() && rows >= input.tokens.size(),
               "each sequence of a step that can be replayed has one token");
  return Upload(input, config, rows);
}

absl::Status StepUpload::Upload(const ModelInput& input, const ModelConfig& config, uint64_t rows) {
  total_bytes_ = 0;
  pieces_.clear();
  paddings_.clear();
  tokens_ = Add(input.tokens, rows);
  positions_ = Add(input.positions, rows);
  query_starts_values_ = input.query_starts;
  if (rows != 0) query_starts_values_.resize(rows + 1, input.query_starts.back());
  query_starts_ = Add(query_starts_values_);
  context_lengths_ = Add(input.context_lengths, rows);
  windows_.clear();
  for (const ModelInput::Window& window : input.windows) {
    windows_.push_back(AddWindow(window, input.context_lengths.size(), rows));
  }
  MakePlans(input, config, rows);
  // Behind everything that a captured step reads: their number is not a part of its shape.
  draws_ = Add(input.draws);

  for (DeviceBuffer* buffer : {&pinned_, &memory_}) {
    absl::Status status = buffer->Grow(total_bytes_);
    if (!status.ok()) return status;
  }
  for (const Piece& piece : pieces_) {
    if (piece.bytes == 0) continue;
    std::memcpy(pinned_.data() + piece.offset_bytes, piece.source, piece.bytes);
  }
  for (const Padding& padding : paddings_) {
    std::memset(pinned_.data() + padding.offset_bytes, padding.value, padding.bytes);
  }
  shape_ = {tokens_.size, context_lengths_.size};
  for (const Window& window : windows_) shape_.push_back(window.stride);
  for (const Plan& plan : plans_) {
    const PlanCapacity& capacity = plan.capacity;
    for (const uint64_t number :
         {uint64_t{capacity.items}, uint64_t{capacity.merged_rows}, uint64_t{capacity.partials},
          uint64_t{capacity.short_rows}, uint64_t{capacity.long_items ? 1u : 0u}}) {
      shape_.push_back(number);
    }
    absl::Status status = kernels::cuda::EncodePlan(
        plan.plan, config.num_heads, plan.capacity,
        {pinned_.data() + plan.offset_bytes, kernels::cuda::PlanBytes(plan.capacity)});
    if (!status.ok()) return status;
  }
  return device_->Copy(memory_.data(), pinned_.data(), total_bytes_);
}

}  // namespace pagoda::cuda
