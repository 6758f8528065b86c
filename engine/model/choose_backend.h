#ifndef PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/choices.h"
#include "engine/model/backend.h"
#include "engine/model/cpu_backend.h"
#include "pools/memory_place.h"

namespace pagoda {

// Whether an engine with that choice can be on some machine: not where this build has no backend
// for GPUs and it is kCuda. Errors: INVALID_ARGUMENT with what is supported.
absl::Status CheckBuilt(EngineBackend choice);

// Whether that choice can compute over pools in that place: kernels reach their own memory alone.
// kAuto goes with every place. Errors: INVALID_ARGUMENT with the keys that would change it.
absl::Status CheckReaches(EngineBackend choice, const MemoryPlace& pools);

// The backend for pools in that place, on the device that they lie on. `cpu.compute` is either
// backend's; `gpu_attention` is that of a GPU's alone. Errors: those of the two above;
// INVALID_ARGUMENT for a gpu_attention other than kAuto on the CPU; those of MakeCudaBackend,
// naming the place; those of MakeCpuBackend.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(
    EngineBackend choice, const MemoryPlace& pools, const CpuBackendOptions& cpu,
    GpuAttention gpu_attention = GpuAttention::kAuto);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_
