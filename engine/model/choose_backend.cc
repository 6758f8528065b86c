#include "engine/model/choose_backend.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/model/cuda/cuda_backend.h"

namespace pagoda {
namespace {

// The same error, with what it is about before it.
absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  const std::string message = absl::StrCat(prefix, status.message());
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? absl::Status(status.code(), message)
                                 : MakeError(reason, message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(EngineBackend choice, const MemoryPlace& pools,
                                                     const CpuBackendOptions& cpu,
                                                     GpuAttention gpu_attention) {
  if (absl::Status status = CheckBuilt(choice); !status.ok()) return status;
  if (absl::Status status = CheckReaches(choice, pools); !status.ok()) return status;
  if (pools.kind == MemoryKind::kHost) {
    if (gpu_attention == GpuAttention::kAuto) return MakeCpuBackend(cpu);
    return MakeError(
        Reason::kInvalidArgument,
        absl::StrCat("gpu_attention is ", NameOf(GpuAttentions(), gpu_attention),
                     ", and the engine computes on the CPU, where the primary pools lie; say auto, "
                     "or cache.primary_memory: cuda"));
  }
  absl::StatusOr<std::unique_ptr<Backend>> made =
      MakeCudaBackend({.device = pools.device, .compute = cpu.compute, .attention = gpu_attention});
  if (made.ok()) return made;
  return Prefixed(absl::StrCat("the primary pools lie in the memory of ", PlaceName(pools),
                               ", and the engine cannot compute there (cache.primary_memory: host "
                               "is for an engine on the CPU): "),
                  made.status());
}

}  // namespace pagoda
