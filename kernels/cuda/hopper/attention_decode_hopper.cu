#include "kernels/cuda/hopper/attention_decode_hopper.h"

#include <algorithm>

#include "kernels/cuda/device/launch.h"

namespace pagoda::kernels::cuda {
namespace {

template <class Kernel>
int LaunchKernel(const HopperLaunch& launch, uint64_t units, uint32_t num_multiprocessors,
                 Stream stream) {
  const uint64_t blocks = std::min<uint64_t>(units, num_multiprocessors * Kernel::kMinBlocks);
  return Launch<Kernel>({.blocks = blocks, .shared_bytes = Kernel::kSharedBytes}, stream, launch);
}

template <class T, KvFormat kFormat, uint32_t kDim>
int LaunchColumns(const HopperLaunch& launch, uint64_t units, uint32_t most_rows,
                  uint32_t num_multiprocessors, Stream stream) {
  if (most_rows <= 8) {
    return LaunchKernel<HopperDecodeKernel<T, kFormat, kDim, 1>>(launch, units, num_multiprocessors,
                                                                 stream);
  }
  return LaunchKernel<HopperDecodeKernel<T, kFormat, kDim, 2>>(launch, units, num_multiprocessors,
                                                               stream);
}

template <class T, KvFormat kFormat>
int LaunchDim(const HopperLaunch& launch, uint64_t units, uint32_t most_rows,
              uint32_t num_multiprocessors, Stream stream) {
  const uint32_t head_dim = launch.args.kv.head_dim;
  if (head_dim <= 64) {
    return LaunchColumns<T, kFormat, 64>(launch, units, most_rows, num_multiprocessors, stream);
  }
  if (head_dim <= 128) {
    return LaunchColumns<T, kFormat, 128>(launch, units, most_rows, num_multiprocessors, stream);
  }
  return LaunchColumns<T, kFormat, 256>(launch, units, most_rows, num_multiprocessors, stream);
}

template <class T>
int LaunchType(const HopperLaunch& launch, uint64_t units, uint32_t most_rows,
               uint32_t num_multiprocessors, Stream stream) {
  return launch.args.kv.type == ElementType::kFloat8E4M3
             ? LaunchDim<T, KvFormat::kE4M3>(launch, units, most_rows, num_multiprocessors, stream)
             : LaunchDim<T, KvFormat::k16Bits>(launch, units, most_rows, num_multiprocessors,
                                               stream);
}

}  // namespace

int LaunchHopperDecode(const HopperLaunch& launch, uint64_t max_units, uint32_t most_rows,
                       uint32_t num_multiprocessors, Stream stream) {
  return launch.args.query_type == ElementType::kFloat16
             ? LaunchType<Half>(launch, max_units, most_rows, num_multiprocessors, stream)
             : LaunchType<BFloat16>(launch, max_units, most_rows, num_multiprocessors, stream);
}

}  // namespace pagoda::kernels::cuda
