#include "kernels/cuda/hopper/attention_latent_hopper.h"

#include <algorithm>

#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

template <class Kernel>
int LaunchKernel(const HopperLaunch& launch, uint64_t blocks, Stream stream) {
  return Launch<Kernel>({.blocks = blocks, .shared_bytes = Kernel::kSharedBytes}, stream, launch);
}

}  // namespace

int LaunchHopperLatent(const HopperLaunch& launch, uint64_t max_units, uint32_t num_multiprocessors,
                       Stream stream) {
  const uint64_t blocks = std::min<uint64_t>(max_units, num_multiprocessors);
  return launch.args.query_type == ElementType::kFloat16
             ? LaunchKernel<HopperLatentKernel<Half>>(launch, blocks, stream)
             : LaunchKernel<HopperLatentKernel<BFloat16>>(launch, blocks, stream);
}

}  // namespace pagoda::kernels::cuda
