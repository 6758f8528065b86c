// A CudaBackend for the tests: a GPU's, or one on the kernels' emulation, by which file is linked
// in.
#ifndef PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_
#define PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_

#include <memory>
#include <string>

#include "engine/choices.h"
#include "engine/model/backend.h"

namespace pagoda {

// Empty: there is one. Else why not.
std::string WhyNoBackend();

// Stops the process where there is none.
std::unique_ptr<Backend> MakeTestBackend(ComputeType compute);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_
