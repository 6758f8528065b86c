// The CPU backend: products by oneDNN, all work on one pool of threads.
#ifndef PAGODA_ENGINE_MODEL_CPU_CPU_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/engine_options.h"
#include "engine/model/backend/backend.h"

namespace pagoda {

struct CpuBackendOptions {
  uint32_t num_threads = 0;  // 0: one for each processor of NumProcessors.
  ComputeType compute = ComputeType::kAuto;
};

// The number of processors that this process can run on.
uint32_t NumProcessors();

// Errors: INVALID_ARGUMENT for kBFloat16 if the processor has no bf16 products; those of
// Thread::Start.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_CPU_BACKEND_H_
