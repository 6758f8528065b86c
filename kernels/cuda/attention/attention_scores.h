// The scores of a row against a tile's keys, in the registers of the four lanes that have the row
// in a product's result. Element r of scores[n] belongs to the tile's key 8 n + lane % 4 * 2 + r %
// 2, and to the warp's row lane / 4 (r < 2) or lane / 4 + 8.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_SCORES_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_SCORES_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/attention_unit.h"
#include "kernels/cuda/device/device.h"

namespace pagoda::kernels::cuda {

// Computes scores with a soft cap or ALiBi, as base-2 logarithms, from products. They belong to the
// unit's row `row`, which is the lane's e-th, and to the keys from position `first` on.
template <uint32_t kTiles>
PAGODA_DEVICE void BendRow(const AttentionArgs& args, const Unit& unit, float scale, uint32_t row,
                           uint32_t first, uint32_t e, float (&scores)[kTiles][4]) {
  const float cap = args.soft_cap;
  const float inverse_cap = 1 / cap;  // Used if there is a cap.
  float slope = 0;
  float distance = 0;  // From the query to the lane's first key. Exact up to 2^24.
  if (args.alibi_slopes != nullptr) {
    slope = args.alibi_slopes[unit.kv_head * args.group + row % args.group];
    distance = static_cast<float>(static_cast<int32_t>(first + LaneIndex() % 4 * 2) -
                                  static_cast<int32_t>(unit.first_position + row / args.group));
  }
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (uint32_t r = 0; r < 2; ++r) {
      float score = scores[n][2 * e + r] * scale;
      if (cap > 0) score = cap * Tanh(score * inverse_cap);
      score += slope * (distance + static_cast<float>(8 * n + r));
      scores[n][2 * e + r] = score * kLog2E;
    }
  }
}

// Sets the scores of keys that the row does not see to -infinity, except keys before
// sight.first_key: MaskBefore does those. kSparse: the mask can have block sparsity.
template <bool kSparse, uint32_t kTiles>
PAGODA_DEVICE void MaskRow(const AttentionArgs& args, const Unit& unit, const Sight& sight,
                           uint32_t row, uint32_t first, uint32_t e, float (&scores)[kTiles][4]) {
  static_assert(kTiles <= 16);  // Two bits of a word per tile.
  const auto position = static_cast<int32_t>(unit.first_position + row / args.group);
  const auto key = static_cast<int32_t>(first + LaneIndex() % 4 * 2);
  int32_t end = static_cast<int32_t>(sight.end_key);  // Behind the last key that the row sees.
  int32_t begin = 0;                                  // The first key that it sees, except sinks.
  if (args.mask.causal) end = position + 1 < end ? position + 1 : end;
  if (args.mask.window_tokens != 0) {
    begin = static_cast<int32_t>(int64_t{position} + 1 - args.mask.window_tokens);
  }
  const auto sinks = static_cast<int32_t>(args.mask.sink_tokens);
  uint32_t sparse = ~0u;  // Bit 2 n + r: block sparsity lets the row see the key.
  if (kSparse && args.mask.sparsity.block_tokens != 0) {
    const uint32_t head = unit.kv_head * args.group + row % args.group;
    sparse = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < 2 * kTiles; ++i) {
      if (Sees(args.mask, head, position, key + i / 2 * 8 + i % 2)) sparse |= 1u << i;
    }
  }
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (uint32_t r = 0; r < 2; ++r) {
      const int32_t at = key + static_cast<int32_t>(8 * n + r);
      // Without branches: && and || would make one for each key.
      const bool hidden = (at >= end) | ((at < begin) & (at >= sinks)) |
                          (kSparse && (sparse >> (2 * n + r) & 1u) == 0);
      if (hidden) scores[n][2 * e + r] = NegativeInfinity();
    }
  }
}

// Sets the scores of keys before `start` to -infinity.
template <uint32_t kTiles>
PAGODA_DEVICE void MaskBefore(uint32_t start, uint32_t first, uint32_t e,
                              float (&scores)[kTiles][4]) {
  const uint32_t key = first + LaneIndex() % 4 * 2;
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
#pragma unroll
    for (uint32_t r = 0; r < 2; ++r) {
      if (key + 8 * n + r < start) scores[n][2 * e + r] = NegativeInfinity();
    }
  }
}

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_SCORES_H_
