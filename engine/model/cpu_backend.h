// The CPU's backend: products by oneDNN, everything on one pool of threads.
#ifndef PAGODA_ENGINE_MODEL_CPU_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/model/backend.h"

namespace pagoda {

// What numbers the factors of a product are; sums and everything else are fp32.
enum class ComputeType : uint8_t {
  kAuto,      // bf16 for matrices that the checkpoint has as bf16, where the processor multiplies
              // them directly; else fp32.
  kFloat32,   // Exact for every checkpoint; twice the memory of 16 bits.
  kBFloat16,  // Inputs of products, and weights that have more digits, are rounded.
};

struct CpuBackendOptions {
  uint32_t num_threads = 0;  // 0: as many as processors that this process may run on.
  ComputeType compute = ComputeType::kAuto;
};

// Errors: INVALID_ARGUMENT for kBFloat16 where the processor has no such products.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CPU_BACKEND_H_
