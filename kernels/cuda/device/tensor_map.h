// A layer's K or V as a tensor map, from which the tensor memory accelerator copies boxes.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_TENSOR_MAP_H_
#define PAGODA_KERNELS_CUDA_DEVICE_TENSOR_MAP_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

// A CUtensorMap: opaque, a plain value, passed to a kernel as a parameter.
struct alignas(128) TensorMap {
  std::byte bytes[128];
};

// K or V, or another part of a pool, as [slot][head][token][element] of 16 bits. A pool of 8 bits
// has pairs of its elements here.
struct TensorShape {
  const std::byte* base = nullptr;  // Aligned to 16 bytes.
  uint32_t elements = 0;            // Per token and head.
  uint32_t tokens = 0;              // Per block.
  uint32_t heads = 0;
  uint32_t slots = 0;
  // Multiples of 16.
  uint64_t token_stride_bytes = 0;
  uint64_t head_stride_bytes = 0;
  uint64_t slot_stride_bytes = 0;
  // A box has 64 elements, swizzled as hopper/hopper.h describes, of this many tokens of one head
  // and slot.
  uint32_t box_tokens = 0;
};

// In shared memory, a box's elements behind a token's last one, or in a slot that does not exist,
// are zeros. The map is one of 16-bit integers, so only bits are copied.
//
// Uses the driver's cuTensorMapEncodeTiled, which is looked up at the first call and needs no
// device. Errors: FailedPrecondition if no driver has that function; Internal if the driver refuses
// the arguments.
absl::Status EncodeTensorMap(const TensorShape& shape, TensorMap* map);

// The properties of the current device that the sm_90a kernels need.
struct HopperDevice {
  bool present = false;  // Compute capability 9.0. sm_90a's code runs on no other device.
  uint32_t num_multiprocessors = 0;
  std::string_view name;  // Valid until the process ends.
};

// Thread-safe. Queries each device once. Errors: Internal for CUDA's errors.
absl::Status FindHopper(HopperDevice* device);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_TENSOR_MAP_H_
