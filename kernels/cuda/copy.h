// Copies blocks on a GPU, and between a GPU and the host.
#ifndef PAGODA_KERNELS_CUDA_COPY_H_
#define PAGODA_KERNELS_CUDA_COPY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/block_copy.h"
#include "kernels/cuda/device/stream.h"

namespace pagoda::kernels::cuda {

// Copies within the GPU's memory, by one kernel for all pairs. Asynchronous on the stream;
// allocates nothing. The pools are device memory, and so is `copies` (an array of SlotCopy). The
// contents of `copies` are not checked, but a copy with a slot outside its pool is skipped. Errors:
// those of CheckShapes; Internal for CUDA's errors.
absl::Status CopyBlocks(const BlockCopyParams& params, Stream stream);

// Does what CopyBlocks does, but copies only the first num_tokens tokens of each slot.
absl::Status CopyBlockTokens(const BlockCopyParams& params, const TokenRuns& runs,
                             uint32_t num_tokens, Stream stream);

// Copies between pinned host memory and the GPU's memory in either direction, or within either one,
// by the copy engines. `copies` is host memory and is checked. Slots that are neighbours in both
// pools become one copy. Asynchronous on the stream, which must not be the default one. Errors:
// those of cpu::CopyBlocks; Internal for CUDA's errors, after which some copies may have begun.
absl::Status CopyBlocksAcross(const BlockCopyParams& params, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_COPY_H_
