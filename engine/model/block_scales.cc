#include "engine/model/block_scales.h"

#include <algorithm>

namespace pagoda {

void StartScales(absl::Span<const int64_t> token_slots, const kernels::KvLayer& kv) {
  const kernels::KvScales& scales = kv.scales;
  if (!scales.per_slot()) return;
  const uint32_t count = scales.per_head ? kv.num_kv_heads : 1;
  for (const int64_t token_slot : token_slots) {
    if (token_slot < 0 || token_slot % kv.tokens_per_block != 0) continue;
    const auto slot = static_cast<uint32_t>(token_slot / kv.tokens_per_block);
    for (const float* part : {scales.keys, scales.values}) {
      if (part == nullptr) continue;
      // Kernels only read scales, so the pointers are const. The header requires a writable
      // mapping.
      std::fill_n(const_cast<float*>(scales.At(part, slot, /*head=*/0)), count, 1.0f);
    }
  }
}

}  // namespace pagoda
