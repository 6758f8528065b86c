#ifndef PAGODA_ENGINE_MODEL_CUDA_KERNELS_STREAMED_LOAD_H_
#define PAGODA_ENGINE_MODEL_CUDA_KERNELS_STREAMED_LOAD_H_

#include "kernels/cuda/device/device.h"

namespace pagoda::cuda {

// Loads 16 bytes that no thread writes while the kernel runs, and that the multiprocessor reads
// once: its first-level cache keeps nothing of them.
PAGODA_DEVICE kernels::cuda::Vector16 LoadStreamed16(const void* address) {
#ifdef __CUDACC__
  kernels::cuda::Vector16 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.words[0]), "=r"(v.words[1]), "=r"(v.words[2]), "=r"(v.words[3])
               : "l"(__cvta_generic_to_global(address)));
  return v;
#else
  return kernels::cuda::LoadGlobal16(address);
#endif
}

}  // namespace pagoda::cuda

#endif  // PAGODA_ENGINE_MODEL_CUDA_KERNELS_STREAMED_LOAD_H_
