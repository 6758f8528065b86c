#ifndef PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_
#define PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/engine_options.h"
#include "engine/model/backend/backend.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/model/cpu/cpu_backend.h"
#include "engine/words/gpu_graphs.h"
#include "pools/memory/memory_place.h"

namespace pagoda {

// Whether this build has the chosen backend: kCuda needs a build with the GPU backend. Errors:
// INVALID_ARGUMENT with the supported choices.
absl::Status CheckBuilt(EngineBackend choice);

// Whether the chosen backend can compute over pools in this place, because kernels reach only their
// own memory. kAuto fits every place. Errors: INVALID_ARGUMENT with the keys to change.
absl::Status CheckReaches(EngineBackend choice, const MemoryPlace& pools);

// Options of a backend on a GPU.
struct GpuBackendOptions {
  GpuAttention attention = GpuAttention::kAuto;
  // Only if the self-test finds them right.
  GpuGraphs graphs = GpuGraphs::kAuto;
  // Finds the kernels that are right on the device (TestGpu, or an earlier report of it). Called at
  // most once, if the pools are on a GPU that could be opened.
  std::function<absl::StatusOr<GpuSelfTestReport>()> self_test;
};

// Makes the backend for pools in this place, on the device that has them. `cpu.compute` is for
// either backend; `gpu` is for a GPU only. On a GPU the backend runs the kernels that the self-test
// has chosen. Errors: those of the two functions above; INVALID_ARGUMENT for a gpu.attention other
// than kAuto on the CPU; those of MakeCudaBackend, of the self-test and of its report's Check, with
// the place; those of MakeCpuBackend. REQUIRES: gpu.self_test is set if the pools are on a GPU.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(EngineBackend choice, const MemoryPlace& pools,
                                                     const CpuBackendOptions& cpu,
                                                     const GpuBackendOptions& gpu = {});

}  // namespace pagoda

#endif  // PAGODA_ENGINE_MODEL_CHOOSE_BACKEND_H_
