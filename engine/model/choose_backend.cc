#include "engine/model/choose_backend.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/cuda/cuda_backend.h"
#include "pools/error.h"

namespace pagoda {
namespace {

absl::Status Refuse(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

// The same error, with what it is about before it.
absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  const std::string message = absl::StrCat(prefix, status.message());
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? absl::Status(status.code(), message)
                                 : MakeError(reason, message);
}

}  // namespace

absl::Status CheckBuilt(EngineBackend choice) {
  if (choice != EngineBackend::kCuda || HasCudaBackend()) return absl::OkStatus();
  return CheckCudaBackend(/*device=*/0);
}

absl::Status CheckReaches(EngineBackend choice, const MemoryPlace& pools) {
  const bool on_host = pools.kind == MemoryKind::kHost;
  if (choice == EngineBackend::kCpu && !on_host) {
    return Refuse(absl::StrCat("the primary pools lie in the memory of ", PlaceName(pools),
                               ", which the backend cpu does not reach: the daemon needs "
                               "cache.primary_memory: host, or the engine the backend cuda "
                               "(engine.backend, --backend)"));
  }
  if (choice == EngineBackend::kCuda && on_host) {
    return Refuse(
        "the primary pools lie in host memory, where the backend cuda does not compute: the daemon "
        "needs cache.primary_memory: cuda, or the engine the backend cpu (engine.backend, "
        "--backend)");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(EngineBackend choice, const MemoryPlace& pools,
                                                     const CpuBackendOptions& cpu) {
  if (absl::Status status = CheckBuilt(choice); !status.ok()) return status;
  if (absl::Status status = CheckReaches(choice, pools); !status.ok()) return status;
  if (pools.kind == MemoryKind::kHost) return MakeCpuBackend(cpu);
  absl::StatusOr<std::unique_ptr<Backend>> made =
      MakeCudaBackend({.device = pools.device, .compute = cpu.compute});
  if (made.ok()) return made;
  return Prefixed(absl::StrCat("the primary pools lie in the memory of ", PlaceName(pools),
                               ", and the engine cannot compute there (cache.primary_memory: host "
                               "is for an engine on the CPU): "),
                  made.status());
}

}  // namespace pagoda
