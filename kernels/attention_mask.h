// The attention mask: which keys a query sees.
#ifndef PAGODA_KERNELS_ATTENTION_MASK_H_
#define PAGODA_KERNELS_ATTENTION_MASK_H_

#include <cstdint>

namespace pagoda::kernels {

#ifdef __CUDACC__
#define PAGODA_HOST_DEVICE __host__ __device__
#else
#define PAGODA_HOST_DEVICE
#endif

// Attention in blocks of positions, after Longformer and BigBird. A query in block Q sees the keys
// of block K if Q - K < local_blocks, or if K + 1 + head * head_step is a multiple of
// vertical_stride. `head` is the query head.
struct BlockSparsity {
  uint32_t block_tokens = 0;  // Positions per block; 0: attention is dense.
  uint32_t local_blocks = 1;
  uint32_t vertical_stride = 0;  // 0: local blocks only.
  uint32_t head_step = 0;
  friend bool operator==(const BlockSparsity&, const BlockSparsity&) = default;
};

// A query at position i sees the key at position j if all of these conditions hold:
//  causal: j <= i. If `causal` is false, the query sees every key of the context (the shared prefix
//    of a cascade);
//  window_tokens: i - j < window_tokens, or j < sink_tokens (0: no window);
//  sparsity.
struct AttentionMask {
  bool causal = true;  // If false, there is no window and no sparsity.
  uint32_t window_tokens = 0;
  uint32_t sink_tokens = 0;  // The first tokens of the context, which every window includes.
  BlockSparsity sparsity;
  friend bool operator==(const AttentionMask&, const AttentionMask&) = default;
};

// Whether the query of `head` at position `query` sees the key at position `key`.
PAGODA_HOST_DEVICE constexpr bool Sees(const AttentionMask& mask, uint32_t head, int64_t query,
                                       int64_t key) {
  if (!mask.causal) return true;
  if (key > query) return false;
  if (mask.window_tokens != 0 && query - key >= mask.window_tokens && key >= mask.sink_tokens) {
    return false;
  }
  const BlockSparsity& sparsity = mask.sparsity;
  if (sparsity.block_tokens == 0) return true;
  const int64_t key_block = key / sparsity.block_tokens;
  if (query / sparsity.block_tokens - key_block < sparsity.local_blocks) return true;
  return sparsity.vertical_stride != 0 &&
         (key_block + 1 + int64_t{head} * sparsity.head_step) % sparsity.vertical_stride == 0;
}

// False if no query at first_query..last_query sees a key at first_key..last_key (ends included),
// in any head. True promises nothing, because block sparsity is left to Sees.
PAGODA_HOST_DEVICE constexpr bool MaySee(const AttentionMask& mask, int64_t first_query,
                                         int64_t last_query, int64_t first_key, int64_t last_key) {
  if (!mask.causal) return true;
  if (first_key > last_query) return false;
  if (mask.window_tokens == 0) return true;
  return first_query - last_key < mask.window_tokens || first_key < mask.sink_tokens;
}

// True if every query at first_query..last_query sees every key at first_key..last_key, so that a
// tile of them needs no mask. False promises nothing.
PAGODA_HOST_DEVICE constexpr bool SeesAll(const AttentionMask& mask, int64_t first_query,
                                          int64_t last_query, int64_t first_key, int64_t last_key) {
  if (!mask.causal) return true;
  if (mask.sparsity.block_tokens != 0 || last_key > first_query) return false;
  return mask.window_tokens == 0 || last_query - first_key < mask.window_tokens ||
         last_key < mask.sink_tokens;
}

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_ATTENTION_MASK_H_
