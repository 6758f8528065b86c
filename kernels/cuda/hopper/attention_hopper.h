// The Hopper kernels of attention, in addition to those of attention/attention_args.h: conditions
// and launch.
#ifndef PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_HOPPER_H_
#define PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_HOPPER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/attention/attention_args.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/device/tensor_map.h"

namespace pagoda::kernels::cuda {

struct HopperLaunch {
  AttentionArgs args;
  ItemKind kind;
  // Tokens per box: the largest power of two that divides tokens_per_block, at most 64 (latents:
  // 32).
  uint32_t box_tokens;
  TensorMap keys;
  TensorMap values;
};

// Whether the Hopper kernel for these items supports a call for which HasTensorKernels is true. It
// needs a pool of 16 bits (short items: or of e4m3), blocks of a multiple of 8 tokens, and no block
// sparsity.
bool HasHopperKernels(const AttentionArgs& args, ItemKind kind);

// Whether the Hopper kernel for latents supports a call for which HasLatentKernel is true: with
// blocks of a multiple of 8 tokens, and no block sparsity.
bool HasHopperLatent(const AttentionArgs& args);

// The arguments of the kernel for these items, or of the one for latents. Errors: those of
// EncodeTensorMap.
absl::Status MakeHopperLaunch(const AttentionArgs& args, ItemKind kind, HopperLaunch* launch);
absl::Status MakeHopperLatentLaunch(const AttentionArgs& args, ItemKind kind, HopperLaunch* launch);

// Launches as many blocks as the units need and the multiprocessors hold. Returns 0 or CUDA's
// error.
int LaunchHopperPrefill(const HopperLaunch& launch, uint64_t max_units,
                        uint32_t num_multiprocessors, Stream stream);
int LaunchHopperDecode(const HopperLaunch& launch, uint64_t max_units, uint32_t most_rows,
                       uint32_t num_multiprocessors, Stream stream);
// For items of either kind.
int LaunchHopperLatent(const HopperLaunch& launch, uint64_t max_units, uint32_t num_multiprocessors,
                       Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_HOPPER_ATTENTION_HOPPER_H_
