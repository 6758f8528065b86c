// Sums over a row that a block of threads handles.
#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_SUMS_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_SUMS_H_

#include <cstdint>

#include "engine/model/cuda/kernels/row_access.h"

namespace pagoda::cuda {

// What RMSNorm multiplies a row by: the reciprocal root of its mean square.
PAGODA_DEVICE float NormFactor(float sum_of_squares, uint64_t count, float eps) {
  const float mean = sum_of_squares / static_cast<float>(count);
  return 1.0f / kernels::cuda::SquareRoot(mean + eps);
}

// The sum over a block of kWarps warps. It uses kWarps * 4 bytes of shared memory from its start
// on. All threads get the same bits.
template <uint32_t kWarps>
PAGODA_DEVICE float SumOfBlock(float value) {
  const float of_warp = kernels::cuda::SumOfWarp(value);
  kernels::cuda::SyncThreads();  // The sum of the previous row has been read.
  const uint32_t base = kernels::cuda::SharedBase();
  if (LaneIndex() == 0) kernels::cuda::StoreShared(base + WarpIndex() * sizeof(float), of_warp);
  kernels::cuda::SyncThreads();
  float sum = 0;
#pragma unroll
  for (uint32_t warp = 0; warp < kWarps; ++warp) {
    sum += kernels::cuda::LoadShared<float>(base + warp * sizeof(float));
  }
  return sum;
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_ROW_SUMS_H_
