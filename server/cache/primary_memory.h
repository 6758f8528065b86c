// Where the primary tier comes to lie, and how many blocks the tiers get.
#ifndef PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_
#define PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/gpu_self_test.h"
#include "engine/model/cuda/cuda_backend.h"
#include "engine/model/gpu_report.h"
#include "manager/tier_spec.h"
#include "pools/cuda/device.h"
#include "pools/layout.h"
#include "pools/sizing.h"
#include "server/config/config.h"

namespace pagoda::server {

struct ChosenMemory {
  std::optional<cuda::DeviceInfo> device;  // None: the host.
  std::string what;                        // Where it lies and why, for people.
  // What the self-test has found, where the daemon's own engine would compute on a GPU: also where
  // it leaves the engine nothing, and the tier lies on the host for that.
  std::optional<GpuSelfTestReport> gpu_report;
};

// What is asked of this machine.
struct GpuProbes {
  std::function<absl::StatusOr<cuda::DeviceInfo>(int device)> describe = cuda::DescribeDevice;
  std::function<absl::Status(int device)> check_backend = CheckCudaBackend;
  std::function<absl::StatusOr<GpuSelfTestReport>(const GpuSelfTestOptions&)> self_test = TestGpu;
};

// cache.primary_memory, looked up on this machine; where that is auto, the daemon's own engine has
// a say, because it computes where its KV lies: on a GPU only if the self-test finds kernels there
// for each part of its steps. Errors, where it has to be a device: those of cuda::DescribeDevice,
// naming the key. Where a GPU was asked for by name (cache.primary_memory, the first tier's medium,
// engine.backend or engine.gpu_attention): those of the self-test, and FAILED_PRECONDITION with its
// report.
absl::StatusOr<ChosenMemory> ChoosePrimaryMemory(const Config& config,
                                                 const GpuProbes& probes = {});

// The sizes of the tiers; a share is one of what is free now where the tier lies.
// Errors: those of PlanSizes and of reading what is free.
absl::StatusOr<SizingPlan> SizesNow(const CacheLayout& layout, const Config::Cache& cache,
                                    const ChosenMemory& chosen);

// The tiers of the core, for ManagerOptions: the configuration's, of those sizes.
std::vector<TierSpec> TiersOf(const Config::Cache& cache, const SizingPlan& sizes);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_
