// Writes the K and V of new tokens into their blocks.
#ifndef PAGODA_KERNELS_CACHE_WRITE_H_
#define PAGODA_KERNELS_CACHE_WRITE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// The K and V of N tokens. A pool without separate values (kv.values is null or kv.keys) takes no
// values.
struct CacheRows {
  const void* keys = nullptr;                // [N][num_kv_heads][head_dim]
  const void* values = nullptr;              // [N][num_kv_heads][value_dim]
  ElementType type = ElementType::kFloat32;  // fp32, fp16 or bf16, for both.
  uint64_t key_token_stride = 0;             // In elements, at least num_kv_heads * head_dim.
  uint64_t value_token_stride = 0;           // In elements, at least num_kv_heads * value_dim.
};

// Token i goes to the token slot token_slots[i] = slot * tokens_per_block + offset. A negative
// token slot is padding and is skipped. No token slot may appear twice.
struct CacheWriteParams {
  CacheRows rows;
  absl::Span<const int64_t> token_slots;  // [N]
  KvLayer kv;
};

// The tokens starts[s] to starts[s + 1] - 1 belong to sequence s, from position first_positions[s]
// on. Decode writes one token per sequence; a prefill writes a whole prompt from position 0. No
// token slot may be named twice. Block table entries of other positions are not read.
struct CacheFillParams {
  CacheRows rows;
  absl::Span<const int32_t> starts;           // [S + 1], ascending from 0 to N.
  absl::Span<const int32_t> first_positions;  // [S]
  absl::Span<const int32_t> block_tables;     // [S][block_table_stride], slot indices, then -1.
  uint64_t block_table_stride = 0;            // In elements.
  KvLayer kv;
};

// Errors: InvalidArgument, naming the argument, for types, shapes and strides that do not fit
// together. Reads no memory behind a pointer or span.
absl::Status CheckShapes(const CacheRows& rows, const KvLayer& kv);
absl::Status CheckShapes(const CacheFillParams& params);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_CACHE_WRITE_H_
