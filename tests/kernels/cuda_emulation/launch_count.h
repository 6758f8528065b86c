#ifndef PAGODA_TESTS_KERNELS_CUDA_EMULATION_LAUNCH_COUNT_H_
#define PAGODA_TESTS_KERNELS_CUDA_EMULATION_LAUNCH_COUNT_H_

#include <cstdint>

namespace pagoda::kernels::cuda::emulation {

// The number of kernels that this thread has launched, those that failed included. A grid without
// blocks is not launched.
uint64_t CountLaunches();

}  // namespace pagoda::kernels::cuda::emulation

#endif  // PAGODA_TESTS_KERNELS_CUDA_EMULATION_LAUNCH_COUNT_H_
