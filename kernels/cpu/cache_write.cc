#include "kernels/cache_write.h"

#include <cstddef>
#include <cstdint>

#include "kernels/numeric.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels::cpu {
namespace {

// One token's heads, [num_kv_heads][head_dim], to its place in a block.
template <class T>
void WriteToken(const KvLayer& kv, const float* source, std::byte* target) {
  for (uint32_t head = 0; head < kv.num_kv_heads; ++head) {
    T* elements = reinterpret_cast<T*>(target + head * kv.head_stride_bytes);
    for (uint32_t i = 0; i < kv.head_dim; ++i) elements[i] = FromFloat<T>(*source++);
  }
}

absl::Status CheckTokenSlots(const CacheWriteParams& params) {
  const int64_t capacity = int64_t{params.kv.num_slots} * params.kv.tokens_per_block;
  for (size_t n = 0; n < params.token_slots.size(); ++n) {
    if (params.token_slots[n] >= capacity) {
      return InvalidArgument("token_slots[", n, "] is ", params.token_slots[n], "; the pool has ",
                             capacity);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteCache(const CacheWriteParams& params) {
  if (absl::Status status = CheckShapes(params); !status.ok()) return status;
  if (absl::Status status = CheckTokenSlots(params); !status.ok()) return status;
  const KvLayer& kv = params.kv;
  VisitElementType(kv.type, [&]<class T>() {
    for (size_t n = 0; n < params.token_slots.size(); ++n) {
      const int64_t token_slot = params.token_slots[n];
      if (token_slot < 0) continue;
      const uint64_t offset =
          kv.offset_bytes(static_cast<uint32_t>(token_slot / kv.tokens_per_block), /*head=*/0,
                          static_cast<uint32_t>(token_slot % kv.tokens_per_block));
      WriteToken<T>(kv, params.keys + n * params.key_token_stride, kv.keys + offset);
      WriteToken<T>(kv, params.values + n * params.value_token_stride, kv.values + offset);
    }
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
