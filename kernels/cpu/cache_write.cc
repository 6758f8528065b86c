#include "kernels/cpu/cache.h"

#include <cstddef>
#include <cstdint>

#include "kernels/numeric.h"
#include "kernels/shape_checks.h"

namespace pagoda::kernels::cpu {
namespace {

// One token's heads, [num_kv_heads][head_dim], to its place in a block.
template <class From, class To>
void WriteToken(const KvLayer& kv, const From* source, const float* scales, std::byte* target) {
  for (uint32_t head = 0; head < kv.num_kv_heads; ++head) {
    To* elements = reinterpret_cast<To*>(target + head * kv.head_stride_bytes);
    const float scale = scales == nullptr ? 1.0f : scales[kv.scales.per_head ? head : 0];
    for (uint32_t i = 0; i < kv.head_dim; ++i) {
      elements[i] = FromFloat<To>(ToFloat(*source++) / scale);
    }
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

absl::Status WriteCache(const CacheWriteParams& params, const Execution&) {
  const KvLayer& kv = params.kv;
  const CacheRows& rows = params.rows;
  if (absl::Status status = CheckShapes(rows, kv); !status.ok()) return status;
  if (absl::Status status = CheckTokenSlots(params); !status.ok()) return status;
  VisitElementType(rows.type, [&]<class From>() {
    VisitElementType(kv.type, [&]<class To>() {
      for (size_t n = 0; n < params.token_slots.size(); ++n) {
        const int64_t token_slot = params.token_slots[n];
        if (token_slot < 0) continue;
        const uint64_t offset =
            kv.offset_bytes(static_cast<uint32_t>(token_slot / kv.tokens_per_block), /*head=*/0,
                            static_cast<uint32_t>(token_slot % kv.tokens_per_block));
        WriteToken<From, To>(kv, static_cast<const From*>(rows.keys) + n * rows.key_token_stride,
                             kv.scales.keys, kv.keys + offset);
        if (rows.values == nullptr) continue;
        WriteToken<From, To>(kv,
                             static_cast<const From*>(rows.values) + n * rows.value_token_stride,
                             kv.scales.values, kv.values + offset);
      }
    });
  });
  return absl::OkStatus();
}

}  // namespace pagoda::kernels::cpu
