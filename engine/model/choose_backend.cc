#include "engine/model/choose_backend.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/model/backend/reference_backend.h"
#include "engine/model/cuda/cuda_backend.h"

namespace pagoda {
namespace {

// The same error with a prefix.
absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  const std::string message = absl::StrCat(prefix, status.message());
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? absl::Status(status.code(), message)
                                 : MakeError(reason, message);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeOnGpu(int device, ComputeType compute,
                                                   const GpuBackendOptions& gpu) {
  if (absl::Status usable = CheckCudaBackend(device); !usable.ok()) return usable;
  PAGODA_CHECK(gpu.self_test != nullptr, "a GPU's kernels are tested before they run");
  const absl::StatusOr<GpuSelfTestReport> report = gpu.self_test();
  if (!report.ok()) return report.status();
  if (absl::Status right = report->Check(); !right.ok()) return right;
  return MakeCudaBackend({.device = device,
                          .compute = compute,
                          .attention = report->attention(),
                          .fused = report->fused(),
                          .graphs = report->graphs() ? gpu.graphs : GpuGraphs::kOff});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(EngineBackend choice, const MemoryPlace& pools,
                                                     const CpuBackendOptions& cpu,
                                                     const GpuBackendOptions& gpu) {
  if (absl::Status status = CheckBuilt(choice); !status.ok()) return status;
  if (absl::Status status = CheckReaches(choice, pools); !status.ok()) return status;
  if (pools.kind == MemoryKind::kHost) {
    if (gpu.attention == GpuAttention::kAuto) {
      if (choice == EngineBackend::kReference) return MakeReferenceBackend();
      return MakeCpuBackend(cpu);
    }
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("gpu_attention is ", NameOf(GpuAttentions(), gpu.attention),
                     ", but the engine computes on the CPU, where the primary pools lie: set "
                     "gpu_attention: auto, or cache.primary_memory: cuda"));
  }
  absl::StatusOr<std::unique_ptr<Backend>> made = MakeOnGpu(pools.device, cpu.compute, gpu);
  if (made.ok()) return made;
  return Prefixed(absl::StrCat("the primary pools lie in the memory of ", PlaceName(pools),
                               ", and the engine cannot compute there (an engine on the CPU needs "
                               "cache.primary_memory: host): "),
                  made.status());
}

}  // namespace pagoda
