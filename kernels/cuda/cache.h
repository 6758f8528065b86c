// Cache writes and reads on NVIDIA GPUs.
#ifndef PAGODA_KERNELS_CUDA_CACHE_H_
#define PAGODA_KERNELS_CUDA_CACHE_H_

#include "absl/status/status.h"
#include "kernels/cache_gather.h"
#include "kernels/cache_write.h"
#include "kernels/cuda/device/stream.h"

namespace pagoda::kernels::cuda {

// All functions are asynchronous on the stream, allocate nothing, and can be captured in a graph.
// Pointers and spans are device memory, and their contents are not checked: a token slot, position
// or table that the headers forbid is undefined behaviour. Exceptions: a token slot outside the
// pool is skipped, and so is a table entry outside the pool in FillCache and GatherCache.
//
// Elements are converted to nearest, ties to even; if both types are the same, they keep their
// bits. Elements of 8 bits are divided by their scale before the conversion, and saturate. The fast
// path needs rows, strides and a pool that are multiples of 16 bytes; others work.
//
// Errors: those of CheckShapes; Internal for CUDA's errors.
absl::Status WriteCache(const CacheWriteParams& params, Stream stream);

// For pools with scales per slot: sets or raises the scales of the blocks that WriteCache will
// write with the same params, by the rules of kernels/float8_scales.h. A raise also changes the
// block's earlier tokens. Does nothing for other pools. The tokens of a block are neighbours among
// token_slots, in ascending order, and its earlier tokens are written. REQUIRES: kv.scales is
// writable. Errors: as WriteCache.
absl::Status FitScales(const CacheWriteParams& params, Stream stream);

// num_tokens is the last entry of `starts`, which the host knows. Tokens behind it are not written.
absl::Status FillCache(const CacheFillParams& params, uint32_t num_tokens, Stream stream);

// num_tokens is the last entry of `starts`. Rows behind it are not written.
absl::Status GatherCache(const CacheGatherParams& params, uint32_t num_tokens, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_CACHE_H_
