// The cache's writes and reads on NVIDIA GPUs.
#ifndef PAGODA_KERNELS_CUDA_CACHE_H_
#define PAGODA_KERNELS_CUDA_CACHE_H_

#include "absl/status/status.h"
#include "kernels/cache_gather.h"
#include "kernels/cache_write.h"
#include "kernels/cuda/stream.h"

namespace pagoda::kernels::cuda {

// All are asynchronous on the stream, allocate nothing and can be captured in a graph. Pointers and
// spans are device memory, whose contents are not checked: a token slot, position or table that the
// headers forbid is undefined, but that a token slot outside the pool, and in FillCache and
// GatherCache a table entry outside of it, is skipped. Elements are converted to nearest, ties to
// even, and keep their bits where both types are one; those of 8 bits are divided by their scale
// before, and saturate. Rows, strides and pool that are whole numbers of 16 bytes make it fast;
// others work.
//
// Errors: those of CheckShapes; Internal for CUDA's.
absl::Status WriteCache(const CacheWriteParams& params, Stream stream);

// num_tokens is starts' last entry, which the host knows; tokens behind it are not written.
absl::Status FillCache(const CacheFillParams& params, uint32_t num_tokens, Stream stream);

// Likewise; rows behind num_tokens are not written.
absl::Status GatherCache(const CacheGatherParams& params, uint32_t num_tokens, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_CACHE_H_
