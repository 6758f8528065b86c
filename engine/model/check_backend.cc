#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/model/choose_backend.h"
#include "engine/model/cuda/cuda_backend.h"

namespace pagoda {
namespace {

absl::Status Refuse(const std::string& what) { return MakeError(Reason::kInvalidArgument, what); }

}  // namespace

absl::Status CheckBuilt(EngineBackend choice) {
  if (choice != EngineBackend::kCuda || HasCudaBackend()) return absl::OkStatus();
  return CheckCudaBackend(/*device=*/0);
}

absl::Status CheckReaches(EngineBackend choice, const MemoryPlace& pools) {
  const bool on_host = pools.kind == MemoryKind::kHost;
  if (NeedsHostPools(choice) && !on_host) {
    return Refuse(absl::StrCat("the primary pools lie in the memory of ", PlaceName(pools),
                               ", which the backend ", NameOf(EngineBackends(), choice),
                               " does not reach: the daemon needs "
                               "cache.primary_memory: host, or the engine needs the backend cuda "
                               "(engine.backend, --backend)"));
  }
  if (choice == EngineBackend::kCuda && on_host) {
    return Refuse(
        "the primary pools lie in host memory, where the backend cuda does not compute: the daemon "
        "needs cache.primary_memory: cuda, or the engine needs the backend cpu (engine.backend, "
        "--backend)");
  }
  return absl::OkStatus();
}

}  // namespace pagoda
