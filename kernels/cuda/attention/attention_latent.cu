#include "kernels/cuda/attention/attention_latent.h"

#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

template <class Kernel>
int LaunchKernel(const AttentionLaunch& launch, uint64_t max_items, Stream stream) {
  if (!HasSharedBytes(Kernel::kSharedBytes)) return LaunchGeneric(launch, max_items, stream);
  return Launch<Kernel>(
      {.blocks = max_items * launch.args.kv.num_kv_heads, .shared_bytes = Kernel::kSharedBytes},
      stream, launch);
}

}  // namespace

bool HasLatentKernel(const AttentionArgs& args) {
  const KvLayer& kv = args.kv;
  return kv.keys == kv.values && kv.type == args.query_type && IsAlignedForTensorCores(args) &&
         !HasTensorKernels(args) && kv.head_dim <= kMostLatentElements &&
         args.value_dim <= kMostLatentValues;
}

int LaunchLatent(const AttentionLaunch& launch, uint64_t max_items, Stream stream) {
  return launch.args.query_type == ElementType::kFloat16
             ? LaunchKernel<LatentKernel<Half>>(launch, max_items, stream)
             : LaunchKernel<LatentKernel<BFloat16>>(launch, max_items, stream);
}

}  // namespace pagoda::kernels::cuda
