#include "kernels/cuda/attention/attention_prefill.h"

#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

template <class Kernel>
int LaunchKernel(const AttentionLaunch& launch, uint64_t units, Stream stream) {
  return Launch<Kernel>({.blocks = units, .shared_bytes = Kernel::kSharedBytes}, stream, launch);
}

// 128 rows; 64 if registers do not hold more.
template <class T, bool kFloat8>
int LaunchDim(const AttentionLaunch& launch, uint64_t units, Stream stream) {
  const uint32_t head_dim = launch.args.kv.head_dim;
  if (head_dim <= 64) {
    return LaunchKernel<PrefillKernel<T, kFloat8, 64, 2>>(launch, units, stream);
  }
  if (head_dim <= 128) {
    return LaunchKernel<PrefillKernel<T, kFloat8, 128, 2>>(launch, units, stream);
  }
  return LaunchKernel<PrefillKernel<T, kFloat8, 256, 1>>(launch, units, stream);
}

template <class T>
int LaunchType(const AttentionLaunch& launch, uint64_t units, Stream stream) {
  return IsFloat8(launch.args.kv.type) ? LaunchDim<T, true>(launch, units, stream)
                                       : LaunchDim<T, false>(launch, units, stream);
}

}  // namespace

int LaunchPrefill(const AttentionLaunch& launch, uint64_t max_items, Stream stream) {
  const uint64_t units = max_items * launch.args.kv.num_kv_heads;
  return launch.args.query_type == ElementType::kFloat16
             ? LaunchType<Half>(launch, units, stream)
             : LaunchType<BFloat16>(launch, units, stream);
}

}  // namespace pagoda::kernels::cuda
