#include "kernels/cpu/cache/cache_mover.h"

namespace pagoda::kernels::cpu {
namespace {

// How many tokens ahead the source is prefetched. Measured with 8 heads of 128.
constexpr uint64_t kTokensAheadByHead = 8;
constexpr uint64_t kTokensAheadByToken = 16;

// Whether every row to store consists of whole lines.
bool AreLines(const CacheSide<std::byte>& target, uint64_t row_bytes) {
  const uint64_t all = reinterpret_cast<uintptr_t>(target.data) | target.token_stride_bytes |
                       target.head_stride_bytes | row_bytes;
  return all % kStreamAlignment == 0;
}

Stores StoresFor(const CacheSide<std::byte>& target, const CacheHeads& heads, uint64_t num_tokens) {
  const uint64_t row_bytes = heads.head_elements * ElementBytes(target.type);
  const bool many = 2 * num_tokens * heads.num_heads * row_bytes >= kPastCachesBytes;  // K and V.
  return many && AreLines(target, row_bytes) ? Stores::kPastCaches : Stores::kThroughCaches;
}

}  // namespace

CacheHeads HeadsOf(const KvLayer& kv, uint32_t head_elements, const float* scales) {
  return {.num_heads = kv.num_kv_heads,
          .head_elements = head_elements,
          .scales = scales,
          .scales_per_head = kv.scales.per_head,
          .scales_slot_stride = kv.scales.slot_stride};
}

uint64_t TokenBytes(const KvLayer& kv) {
  return (uint64_t{kv.head_dim} + kv.value_elements()) * kv.num_kv_heads * ElementBytes(kv.type);
}

CacheMover::CacheMover(const CacheSide<const std::byte>& source, const CacheSide<std::byte>& target,
                       const CacheHeads& heads, uint64_t num_tokens, Isa isa)
    : source_(source),
      target_(target),
      heads_(heads),
      convert_(FindConversion(source.type, target.type, isa, StoresFor(target, heads, num_tokens))),
      by_token_(target.head_stride_bytes < target.token_stride_bytes) {
  if (heads_.scales == nullptr) {
    static constexpr float kOne = 1.0f;
    heads_.scales = &kOne;
    heads_.scales_per_head = false;
    heads_.scales_slot_stride = 0;
  }
}

void CacheMover::Move(uint64_t source_bytes, uint64_t target_bytes, uint64_t num_tokens,
                      uint32_t slot) const {
  const bool by_token = (by_token_ || num_tokens == 1) && !heads_.scales_per_head;
  const uint64_t num_heads = heads_.num_heads;
  Rows rows{
      .source = source_.data + source_bytes,
      .source_stride_bytes = by_token ? source_.head_stride_bytes : source_.token_stride_bytes,
      .target = target_.data + target_bytes,
      .target_stride_bytes = by_token ? target_.head_stride_bytes : target_.token_stride_bytes,
      .num_rows = by_token ? num_heads : num_tokens,
      .row_elements = heads_.head_elements,
      .prefetch_bytes =
          (by_token ? kTokensAheadByToken : kTokensAheadByHead) * source_.token_stride_bytes};
  const float* scales = heads_.scales + slot * heads_.scales_slot_stride;
  const uint64_t steps = by_token ? num_tokens : num_heads;
  for (uint64_t i = 0; i < steps; ++i) {
    convert_(rows, scales[heads_.scales_per_head ? i : 0]);
    rows.source += by_token ? source_.token_stride_bytes : source_.head_stride_bytes;
    rows.target += by_token ? target_.token_stride_bytes : target_.head_stride_bytes;
  }
}

}  // namespace pagoda::kernels::cpu
