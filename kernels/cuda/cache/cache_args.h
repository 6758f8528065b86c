// The arguments of the kernels for cache writes, cache reads and block copies.
#ifndef PAGODA_KERNELS_CUDA_CACHE_CACHE_ARGS_H_
#define PAGODA_KERNELS_CUDA_CACHE_CACHE_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/block_copy.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/types.h"

namespace pagoda::kernels::cuda {

// The positions of a call's tokens in the pool: by token slots if these are set, else by tables.
struct TokenPlaces {
  const int64_t* token_slots;
  const int32_t* starts;           // [num_sequences + 1]
  const int32_t* first_positions;  // Null: all 0.
  const int32_t* block_tables;
  uint64_t block_table_stride;
  uint32_t num_sequences;
};

// The rows of tokens outside the pool, [num_tokens][num_kv_heads][key_dim or value_dim]; null:
// none.
struct TokenRows {
  std::byte* keys;
  std::byte* values;
  ElementType type;
  uint64_t key_token_stride;
  uint64_t value_token_stride;
  uint32_t num_tokens;
  uint32_t value_dim;
};

struct CacheArgs {
  TokenPlaces places;
  TokenRows rows;
  KvLayer kv;
  bool vectors;  // Eight elements at a time are whole and aligned, on both sides.
};

int LaunchWrite(const CacheArgs& args, Stream stream);
// Fits the scales of the blocks that LaunchWrite writes. REQUIRES: token slots, scales per slot.
int LaunchFitScales(const CacheArgs& args, Stream stream);
int LaunchGather(const CacheArgs& args, Stream stream);

// Copies `copied_bytes` of each run of a slot; runs are `run_bytes` apart.
struct BlockCopyArgs {
  const std::byte* source;
  std::byte* target;
  uint32_t source_slots;
  uint32_t target_slots;
  uint64_t slot_bytes;
  const SlotCopy* copies;
  uint64_t num_copies;
  uint64_t num_runs;
  uint64_t run_bytes;
  uint64_t copied_bytes;
};

int LaunchBlockCopy(const BlockCopyArgs& args, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_CACHE_CACHE_ARGS_H_
