#include "kernels/cuda/hopper/attention_prefill_hopper.h"

#include <algorithm>

#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

template <class Kernel>
int LaunchKernel(const HopperLaunch& launch, uint64_t blocks, Stream stream) {
  return Launch<Kernel>({.blocks = blocks, .shared_bytes = Kernel::kSharedBytes}, stream, launch);
}

template <class T>
int LaunchType(const HopperLaunch& launch, uint64_t blocks, Stream stream) {
  const uint32_t head_dim = launch.args.kv.head_dim;
  if (head_dim <= 64) return LaunchKernel<HopperPrefillKernel<T, 64>>(launch, blocks, stream);
  if (head_dim <= 128) return LaunchKernel<HopperPrefillKernel<T, 128>>(launch, blocks, stream);
  return LaunchKernel<HopperPrefillKernel<T, 256>>(launch, blocks, stream);
}

}  // namespace

int LaunchHopperPrefill(const HopperLaunch& launch, uint64_t max_units,
                        uint32_t num_multiprocessors, Stream stream) {
  const uint64_t blocks = std::min<uint64_t>(max_units, num_multiprocessors);
  return launch.args.query_type == ElementType::kFloat16
             ? LaunchType<Half>(launch, blocks, stream)
             : LaunchType<BFloat16>(launch, blocks, stream);
}

}  // namespace pagoda::kernels::cuda
