// Copies of blocks on a GPU, and between it and the host.
#ifndef PAGODA_KERNELS_CUDA_COPY_H_
#define PAGODA_KERNELS_CUDA_COPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/block_copy.h"
#include "kernels/cuda/stream.h"

namespace pagoda::kernels::cuda {

// Within the GPU's memory, by one kernel over all pairs: asynchronous on the stream, without
// allocation. Pools are device memory; so are `copies` (SlotCopy as it stands), whose contents are
// not checked, but that a copy with a slot outside its pool is skipped. Errors: those of
// CheckShapes; Internal for CUDA's.
absl::Status CopyBlocks(const BlockCopyParams& params, Stream stream);

// The first num_tokens tokens of each slot; likewise.
absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens, Stream stream);

// Between pinned host memory and the GPU's, either way, or within either, by the copy engines;
// `copies` are host memory and are checked. Neighbours in both pools become one copy. Asynchronous
// on the stream, which is not the default one. Errors: those of cpu::CopyBlocks; Internal for
// CUDA's, some copies of which may have begun.
absl::Status CopyBlocksAcross(const BlockCopyParams& params, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_COPY_H_
