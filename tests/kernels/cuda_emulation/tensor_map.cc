// Implements kernels/cuda/device/tensor_map.h with host memory as device memory. Refuses what the
// driver refuses.
#include "kernels/cuda/device/tensor_map.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda_emulation/barriers.h"

namespace pagoda::kernels::cuda {

absl::Status EncodeTensorMap(const TensorShape& shape, TensorMap* map) {
  const uint64_t strides[] = {shape.token_stride_bytes, shape.head_stride_bytes,
                              shape.slot_stride_bytes};
  bool good = reinterpret_cast<uintptr_t>(shape.base) % 16 == 0 &&
              reinterpret_cast<uintptr_t>(map) % alignof(TensorMap) == 0;
  for (const uint64_t stride : strides) {
    good = good && stride % 16 == 0 && stride < uint64_t{1} << 40;
  }
  for (const uint32_t size : {shape.elements, shape.tokens, shape.heads, shape.slots}) {
    good = good && size > 0;
  }
  good = good && shape.box_tokens > 0 && shape.box_tokens <= 256;
  if (!good) {
    return absl::InternalError(absl::StrCat(
        "a tensor map of base 0x", absl::Hex(reinterpret_cast<uintptr_t>(shape.base)), ", strides ",
        strides[0], ", ", strides[1], ", ", strides[2], ", boxes of ", shape.box_tokens));
  }
  const emulation::BoxSource source = {shape};
  std::memcpy(map->bytes, &source, sizeof(source));
  return absl::OkStatus();
}

absl::Status FindHopper(HopperDevice* device) {
  *device = {.present = true, .num_multiprocessors = 132, .name = "emulated"};
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cuda
