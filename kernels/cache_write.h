// Writes the K and V of new tokens into their blocks.
#ifndef PAGODA_KERNELS_CACHE_WRITE_H_
#define PAGODA_KERNELS_CACHE_WRITE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// N tokens. Token i goes to the token slot token_slots[i] = slot * tokens_per_block + offset; a
// negative one is padding and is skipped. No token slot may appear twice.
struct CacheWriteParams {
  const float* keys = nullptr;            // [N][num_kv_heads][head_dim]
  const float* values = nullptr;          // [N][num_kv_heads][head_dim]
  uint64_t key_token_stride = 0;          // In elements, at least num_kv_heads * head_dim.
  uint64_t value_token_stride = 0;        // In elements.
  absl::Span<const int64_t> token_slots;  // [N]
  KvLayer kv;
};

// InvalidArgument, naming the argument, for shapes and strides that do not fit together. Looks at
// no memory behind a pointer or span.
absl::Status CheckShapes(const CacheWriteParams& params);

namespace cpu {
// Converts to the pool's element type, to nearest, ties to even. Synchronous; safe to call from
// several threads on different token slots. Errors: those of CheckShapes, and InvalidArgument for a
// token slot outside the pool; nothing is written then.
absl::Status WriteCache(const CacheWriteParams& params);
}  // namespace cpu

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_CACHE_WRITE_H_
