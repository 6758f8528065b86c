// The arguments of the kernel that merges the results of several calls.
#ifndef PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_MERGE_ARGS_H_
#define PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_MERGE_ARGS_H_

#include <cstdint>

#include "kernels/cuda/attention/attention_args.h"

namespace pagoda::kernels::cuda {

inline constexpr uint32_t kMaxCallParts = 8;

struct CallMergeArgs {
  const std::byte* output_of[kMaxCallParts];
  const float* lse_of[kMaxCallParts];
  uint32_t num_parts;
  ElementType type;
  std::byte* output;
  uint64_t output_token_stride;
  float* lse;
  uint32_t num_tokens;
  uint32_t num_heads;
  uint32_t value_dim;
};

int LaunchCallMerge(const CallMergeArgs& args, Stream stream);

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_ATTENTION_ATTENTION_MERGE_ARGS_H_
