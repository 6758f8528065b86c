// Reads the K and V of sequences from their blocks.
#ifndef PAGODA_KERNELS_CACHE_GATHER_H_
#define PAGODA_KERNELS_CACHE_GATHER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/types.h"

namespace pagoda::kernels {

// Gathers K and V of S sequences, one sequence after another, as contiguous rows: token t of
// sequence s is row starts[s] + t. Elements of 8 bits are multiplied by their scale. In a pool of
// latents (kv.values == kv.keys), a value is the beginning of a key.
struct CacheGatherParams {
  void* keys = nullptr;    // [N][num_kv_heads][head_dim]; null: keys are not gathered.
  void* values = nullptr;  // [N][num_kv_heads][value_dim]; null: values are not gathered. Null if
                           // kv.values is.
  ElementType type = ElementType::kFloat32;  // fp32, fp16 or bf16, for both.
  absl::Span<const int32_t> starts;          // [S + 1], ascending from 0 to N.
  absl::Span<const int32_t> block_tables;    // [S][block_table_stride], slot indices, then -1.
  uint64_t block_table_stride = 0;           // In elements.
  KvLayer kv;
};

// Errors: InvalidArgument, naming the argument, for types, shapes and strides that do not fit
// together. Reads no memory behind a pointer or span.
absl::Status CheckShapes(const CacheGatherParams& params);

}  // namespace pagoda::kernels

#endif  // PAGODA_KERNELS_CACHE_GATHER_H_
