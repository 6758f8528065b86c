// The kernels that choose a step's tokens from its logits, by the rule of Sampler::Choose
// (engine/sampling/sampling.h) and with its bits: they give the same tokens. Their launches are
// like those of row_kernels.h. They must not be compiled with fused products and sums.
#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_SAMPLING_KERNELS_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_SAMPLING_KERNELS_H_

#include <cstdint>

#include "engine/model/backend/rows_view.h"
#include "engine/words/token_draw.h"
#include "kernels/cuda/device/stream.h"

namespace pagoda::cuda {

// The scores of a row are in blocks of this number, which are added first.
inline constexpr uint64_t kDrawBlock = 128;
// Larger vocabularies are not drawn from on a GPU.
inline constexpr uint64_t kMostDrawScores = kDrawBlock * 4096;

struct DrawArgs {
  RowsView logits;                   // fp32. REQUIRES: cols <= kMostDrawScores.
  const TokenDraw* draws = nullptr;  // [rows]
  // Scratch memory, by row and block.
  float* maxima = nullptr;  // [rows][blocks]
  double* sums = nullptr;   // [rows][blocks]
  float* most = nullptr;    // [rows]
  // The result, [rows]: the token, kNoNumber, or kNotDrawn for TokenDraw::Kind::kLogits and for the
  // few rows whose draw needs a sort of more tokens than the kernel has room for.
  uint32_t* tokens = nullptr;

  uint64_t blocks() const { return (logits.cols + kDrawBlock - 1) / kDrawBlock; }
};

// One after the other, on one stream: LaunchMostLikely chooses the most likely token of each row.
// The others are needed only if a draw has a temperature above 0: LaunchDrawWeights if one of these
// draws has no top_k, then LaunchDraw.
int LaunchMostLikely(const DrawArgs& args, kernels::cuda::Stream stream);
int LaunchDrawWeights(const DrawArgs& args, kernels::cuda::Stream stream);
int LaunchDraw(const DrawArgs& args, kernels::cuda::Stream stream);

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_SAMPLING_KERNELS_H_
