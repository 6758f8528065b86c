#ifndef PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/choices.h"
#include "engine/model/backend.h"
#include "engine/model/cpu_backend.h"
#include "engine/model/gpu_report.h"
#include "pools/memory_place.h"

namespace pagoda {

// Whether an engine with that choice can be on some machine: not where this build has no backend
// for GPUs and it is kCuda. Errors: INVALID_ARGUMENT with what is supported.
absl::Status CheckBuilt(EngineBackend choice);

// Whether that choice can compute over pools in that place: kernels reach their own memory alone.
// kAuto goes with every place. Errors: INVALID_ARGUMENT with the keys that would change it.
absl::Status CheckReaches(EngineBackend choice, const MemoryPlace& pools);

// What a backend on a GPU goes by.
struct GpuBackendOptions {
  GpuAttention attention = GpuAttention::kAuto;
  // Finds which of the device's kernels are right (TestGpu, or what it has found before). Called
  // at most once, where the pools lie on a GPU that could be opened.
  std::function<absl::StatusOr<GpuSelfTestReport>()> self_test;
};

// The backend for pools in that place, on the device that they lie on. `cpu.compute` is either
// backend's; `gpu` is that of a GPU's alone. On a GPU it runs the kernels that the self-test has
// chosen. Errors: those of the two above; INVALID_ARGUMENT for a gpu.attention other than kAuto on
// the CPU; those of MakeCudaBackend, of the self-test and of its report's Check, naming the place;
// those of MakeCpuBackend. REQUIRES: gpu.self_test where the pools lie on a GPU.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(EngineBackend choice, const MemoryPlace& pools,
                                                     const CpuBackendOptions& cpu,
                                                     const GpuBackendOptions& gpu = {});

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_
