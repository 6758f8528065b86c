// Checks of CUDA calls for tests.
#ifndef PAGODA_TESTS_GPU_CUDA_CHECK_H_
#define PAGODA_TESTS_GPU_CUDA_CHECK_H_

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

// Ends the program, with CUDA's name for the error.
#define PAGODA_CUDA_CHECK(call)                                          \
  do {                                                                   \
    const cudaError_t pagoda_error = (call);                             \
    if (pagoda_error != cudaSuccess) {                                   \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                   cudaGetErrorName(pagoda_error));                      \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

#endif  // PAGODA_TESTS_GPU_CUDA_CHECK_H_
