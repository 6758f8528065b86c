#ifndef PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_LISTS_H_
#define PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_LISTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/model/cuda/device/compute_device.h"
#include "engine/model/cuda/kernels/row_kernels.h"

namespace pagoda::cuda {

// The lists of Backend::AddRows on the device. Memory is kept from step to step. Thread-compatible.
class StepLists {
 public:
  // `device` outlives it.
  explicit StepLists(ComputeDevice* device)
      : device_(*device),
        pinned_(device, MemorySide::kPinned),
        memory_(device, MemorySide::kDevice) {}

  // For each row of a sum, the list of its addends in ascending order. Starts their copy, in the
  // stream's order; first waits for the device if an earlier copy can still be under way. Valid
  // until the next Upload. Errors: OUT_OF_MEMORY; INTERNAL.
  absl::Status Upload(absl::Span<const uint32_t> rows, absl::Span<const float> factors,
                      uint64_t num_sums, AddendLists& lists);
  // The device has been waited for.
  void Waited() { in_flight_ = false; }

 private:
  ComputeDevice& device_;
  DeviceBuffer pinned_;
  DeviceBuffer memory_;
  bool in_flight_ = false;
};

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_STEP_STEP_LISTS_H_
