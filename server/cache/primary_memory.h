// Chooses the memory of the primary tier and the sizes of the tiers.
#ifndef PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_
#define PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/words/tier_spec.h"
#include "pagoda/v1/engine_process.pb.h"
#include "pools/cuda/device.h"
#include "pools/layout.h"
#include "pools/sizing.h"
#include "server/config/config.h"
#include "server/engine/engine_program.h"

namespace pagoda::server {

struct ChosenMemory {
  std::optional<cuda::DeviceInfo> device;  // None: the host.
  std::string what;                        // The place and the reason, for the log.
  // The result of the self-test if the daemon's own engine would compute on a GPU. Present even if
  // the test found no usable kernels and the tier lies on the host for that reason.
  std::optional<v1::GpuSelfTest> gpu_report;
};

// The questions to this machine. Tests replace them.
struct GpuProbes {
  std::function<absl::StatusOr<cuda::DeviceInfo>(int device)> describe = cuda::DescribeDevice;
  std::function<absl::StatusOr<v1::GpuSelfTest>(const GpuQuestion&)> self_test = TestEngineOnGpu;
};

// Applies cache.primary_memory to this machine. With auto, the daemon's own engine counts, because
// it computes where its KV lies: a GPU is chosen only if the self-test finds kernels there for each
// part of the engine's steps.
// Errors if the tier must be on a device: those of cuda::DescribeDevice, with the key's name.
// Errors if the configuration names a GPU (cache.primary_memory, the first tier's medium,
// engine.backend or engine.gpu_attention): those of the self-test, and FAILED_PRECONDITION with its
// report.
absl::StatusOr<ChosenMemory> ChoosePrimaryMemory(const Config& config,
                                                 const GpuProbes& probes = {});

// The sizes of the tiers. A share counts the memory that is free now where the tier lies.
// Errors: those of PlanSizes and of reading what is free.
absl::StatusOr<SizingPlan> SizesNow(const CacheLayout& layout, const Config::Cache& cache,
                                    const ChosenMemory& chosen);

// The configuration's tiers with these sizes, for the core (ManagerOptions).
std::vector<TierSpec> TiersOf(const Config::Cache& cache, const SizingPlan& sizes);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_
