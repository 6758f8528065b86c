// A layer's K or V as the tensor memory accelerator sees it: which box of it a copy brings.
#ifndef PAGODA_KERNELS_CUDA_TENSOR_MAP_H_
#define PAGODA_KERNELS_CUDA_TENSOR_MAP_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

// CUtensorMap: opaque, a plain value. A kernel has it as a parameter.
struct alignas(128) TensorMap {
  std::byte bytes[128];
};

// K or V, or any part of a pool, as [slot][head][token][element] of 16 bits.
struct TensorShape {
  const std::byte* base = nullptr;  // Aligned to 16 bytes.
  uint32_t elements = 0;            // Of a token in a head.
  uint32_t tokens = 0;              // Of a block.
  uint32_t heads = 0;
  uint32_t slots = 0;
  // Multiples of 16.
  uint64_t token_stride_bytes = 0;
  uint64_t head_stride_bytes = 0;
  uint64_t slot_stride_bytes = 0;
  // A box has 64 elements, swizzled as hopper.h says, of this many tokens of one head and slot.
  uint32_t box_tokens = 0;
};

// Elements of a box behind the last one of a token, or in a slot that there is not, are zeros in
// shared memory. Bits alone are copied: the map is that of 16-bit integers.
//
// It takes the driver's cuTensorMapEncodeTiled, which is looked up when it is first called and
// needs no device. Errors: FailedPrecondition where there is no driver that has it; Internal for
// what the driver refuses.
absl::Status EncodeTensorMap(const TensorShape& shape, TensorMap* map);

// What the kernels of sm_90a want to know of the current device.
struct HopperDevice {
  bool present = false;  // Compute capability 9.0: sm_90a's code runs nowhere else.
  uint32_t num_multiprocessors = 0;
  std::string_view name;  // Valid as long as the process runs.
};

// Thread-safe. A device is asked once. Errors: Internal for CUDA's.
absl::Status FindHopper(HopperDevice* device);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_TENSOR_MAP_H_
