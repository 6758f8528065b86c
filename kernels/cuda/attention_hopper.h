// The kernels for Hopper beside those of attention_args.h: what they take, and their launch.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_HOPPER_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_HOPPER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/tensor_map.h"

namespace pagoda::kernels::cuda {

struct HopperLaunch {
  AttentionArgs args;
  ItemKind kind;
  // Tokens of a box: the largest power of two that divides tokens_per_block, at most 64.
  uint32_t box_tokens;
  TensorMap keys;
  TensorMap values;
};

// Whether they take it, of what HasTensorKernels says yes to: pools of 16 bits in blocks of a
// multiple of 8 tokens, no block sparsity.
bool HasHopperKernels(const AttentionArgs& args);

// Errors: those of EncodeTensorMap.
absl::Status MakeHopperLaunch(const AttentionArgs& args, ItemKind kind, HopperLaunch* launch);

// As many blocks as the units need and the multiprocessors hold. 0, or CUDA's error.
int LaunchHopperPrefill(const HopperLaunch& launch, uint64_t max_units,
                        uint32_t num_multiprocessors, Stream stream);
int LaunchHopperDecode(const HopperLaunch& launch, uint64_t max_units, uint32_t most_rows,
                       uint32_t num_multiprocessors, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_HOPPER_H_
