#ifndef PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CONVERTED_ROWS_H_
#define PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CONVERTED_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/backend/rows_view.h"
#include "engine/model/cuda/device/compute_device.h"
#include "kernels/types.h"

namespace pagoda::cuda {

// Rows in other types. The results of a call are valid until the next one. Memory is kept from step
// to step. Everything is in the stream's order. Thread-compatible.
class ConvertedRows {
 public:
  // `device` outlives it.
  explicit ConvertedRows(ComputeDevice* device)
      : device_(*device), memory_(device, MemorySide::kDevice) {}

  // `converted`: the rows in this type, contiguous, with this room; or the rows themselves, if they
  // have it. Errors: OUT_OF_MEMORY; INTERNAL.
  absl::Status Convert(kernels::ElementType type, const RowsView& rows, uint64_t room,
                       RowsView* converted);

  // Attention's queries and output.
  struct AttentionRows {
    RowsView queries;
    RowsView output;
  };
  // Rows in attention's type: they themselves, or contiguous rows. Only queries are converted.
  // Errors: OUT_OF_MEMORY; INTERNAL.
  absl::Status ForAttention(kernels::ElementType type, AttentionRows* rows);

 private:
  ComputeDevice& device_;
  DeviceBuffer memory_;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_PRODUCTS_CONVERTED_ROWS_H_
