#ifndef PAGODA_ENGINE_MODEL_LAYERS_GROWING_ROWS_H_
#define PAGODA_ENGINE_MODEL_LAYERS_GROWING_ROWS_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "engine/model/backend/backend.h"
#include "engine/model/backend/rows_view.h"

namespace pagoda {

// Rows of activations that keep their memory from step to step.
class GrowingRows {
 public:
  // The rows' content is lost if they grow. Errors: those of Backend::Allocate.
  absl::Status Resize(Backend& backend, uint64_t rows, uint64_t cols) {
    const uint64_t room = backend.RoomFor(rows);
    view_ = {.data = memory_.get(), .stride = cols, .rows = rows, .cols = cols, .room = room};
    if (room * cols <= capacity_) return absl::OkStatus();
    absl::StatusOr<FloatMemory> memory = backend.Allocate(room * cols);
    if (!memory.ok()) return memory.status();
    memory_ = *std::move(memory);
    capacity_ = room * cols;
    view_.data = memory_.get();
    return absl::OkStatus();
  }

  const RowsView& view() const { return view_; }

 private:
  FloatMemory memory_;
  uint64_t capacity_ = 0;  // In elements.
  RowsView view_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_LAYERS_GROWING_ROWS_H_
