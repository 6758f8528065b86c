// A CudaBackend for the tests. The linked file decides between a GPU and the kernels' emulation.
#ifndef PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_
#define PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_

#include <memory>
#include <string>

#include "base/engine_options.h"
#include "engine/model/backend/backend.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/words/gpu_graphs.h"
#include "tests/engine/model/model_runner.h"

namespace pagoda {

// Why there is no backend; empty if there is one.
std::string WhyNoBackend();

// Stops the process if there is none.
std::unique_ptr<Backend> MakeTestBackend(ComputeType compute, GpuGraphs graphs = GpuGraphs::kOff,
                                         const FusedChoice& fused = {});

// KV that the backend's kernels reach. On a GPU it is mapped by a descriptor, as in a client of the
// cache. Stops the process if that fails.
std::unique_ptr<KvMemory> MakeTestKvMemory();

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_CUDA_TEST_BACKEND_H_
