// Launches a kernel. A kernel is a type K with
//   static constexpr uint32_t kThreads;    // Per block.
//   static constexpr uint32_t kMinBlocks;  // Blocks that must fit a multiprocessor at a time.
//   using Args = ...;                      // Plain, passed by value.
//   static void Run(const Args& args);     // The work of one thread, by device.h.
#ifndef PAGODA_KERNELS_CUDA_DEVICE_LAUNCH_H_
#define PAGODA_KERNELS_CUDA_DEVICE_LAUNCH_H_

#include <cstdint>
#include <string_view>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/launch_record.h"
#include "kernels/cuda/device/stream.h"

namespace pagoda::kernels::cuda {

struct Grid {
  uint64_t blocks = 0;        // 0: nothing is launched.
  uint32_t shared_bytes = 0;  // Per block.
};

// More blocks than any batch needs. Kernels handle the rest in steps of the grid.
inline constexpr uint64_t kMaxBlocks = uint64_t{1} << 20;

#ifdef __CUDACC__

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kMinBlocks)
    Enter(const __grid_constant__ typename Kernel::Args args) {
  Kernel::Run(args);
}

// Returns 0 or a cudaError_t. Asynchronous and without allocation, so it can be captured in a
// graph.
template <class Kernel>
int Launch(const Grid& grid, Stream stream, const typename Kernel::Args& args) {
  constexpr uint32_t kWithoutAsking = 48 * 1024;
  if (grid.blocks == 0) return 0;
  if (grid.shared_bytes > kWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(Enter<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(grid.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  const auto blocks = static_cast<uint32_t>(grid.blocks < kMaxBlocks ? grid.blocks : kMaxBlocks);
  static constexpr std::string_view kName = KernelIn(__PRETTY_FUNCTION__);
  RecordLaunch(kName, blocks, Kernel::kThreads, grid.shared_bytes, args);
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = Kernel::kThreads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  // Returns this launch's own error. cudaGetLastError would return an earlier one of other code.
  return cudaLaunchKernelEx(&config, Enter<Kernel>, args);
}

// Whether a block can have this much shared memory on the current device.
inline bool HasSharedBytes(uint32_t bytes) {
  if (bytes <= kSharedBytesEverywhere) return true;
  int device = 0;
  int most = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
             cudaSuccess &&
         bytes <= static_cast<uint32_t>(most);
}

#else

inline bool HasSharedBytes(uint32_t bytes) { return bytes <= emulation::MostSharedBytes(); }

template <class Kernel>
int Launch(const Grid& grid, Stream, const typename Kernel::Args& args) {
  if (grid.blocks == 0) return 0;
  const uint64_t blocks = grid.blocks < kMaxBlocks ? grid.blocks : kMaxBlocks;
  static constexpr std::string_view kName = KernelIn(__PRETTY_FUNCTION__);
  RecordLaunch(kName, blocks, Kernel::kThreads, grid.shared_bytes, args);
  // By value, as hardware takes them: a captured launch outlives the caller's arguments.
  return emulation::Launch(blocks, Kernel::kThreads, grid.shared_bytes,
                           [args] { Kernel::Run(args); });
}

#endif

}  // namespace pagoda::kernels::cuda

#endif  // PAGODA_KERNELS_CUDA_DEVICE_LAUNCH_H_
