// The CPU's backend: products by oneDNN, everything on one pool of threads.
#ifndef PAGODA_ENGINE_MODEL_CPU_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/choices.h"
#include "engine/model/backend.h"

namespace pagoda {

struct CpuBackendOptions {
  uint32_t num_threads = 0;  // 0: as many as processors that this process may run on.
  ComputeType compute = ComputeType::kAuto;
};

// Those that this process may run on.
uint32_t NumProcessors();

// Errors: INVALID_ARGUMENT for kBFloat16 where the processor has no such products.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_BACKEND_H_
