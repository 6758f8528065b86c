// A CudaBackend for the tests: a GPU's, or one on the kernels' emulation, by which file is linked
// in.
#ifndef PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_
#define PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_

#include <memory>
#include <string>

#include "engine/choices.h"
#include "engine/model/backend.h"
#include "tests/engine/model_runner.h"

namespace pagoda {

// Empty: there is one. Else why not.
std::string WhyNoBackend();

// Stops the process where there is none.
std::unique_ptr<Backend> MakeTestBackend(ComputeType compute);

// KV where that backend's kernels reach it; on a GPU as a client of the cache has it, mapped by a
// descriptor. Stops the process where that fails.
std::unique_ptr<KvMemory> MakeTestKvMemory();

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_
