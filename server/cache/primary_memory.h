// Where the primary tier comes to lie, and how many blocks the tiers get.
#ifndef PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_
#define PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/tier_spec.h"
#include "pools/cuda/device.h"
#include "pools/layout.h"
#include "pools/sizing.h"
#include "server/config/config.h"

namespace pagoda::server {

struct ChosenMemory {
  std::optional<cuda::DeviceInfo> device;  // None: the host.
  std::string what;                        // Where it lies and why, for people.
};

// cache.primary_memory, looked up on this machine; where that is auto, the daemon's own engine has
// a say, because it computes where its KV lies. Errors, where it has to be a device: those of
// cuda::DescribeDevice, naming the key.
absl::StatusOr<ChosenMemory> ChoosePrimaryMemory(const Config& config);

// The sizes of the tiers; a share is one of what is free now where the tier lies.
// Errors: those of PlanSizes and of reading what is free.
absl::StatusOr<SizingPlan> SizesNow(const CacheLayout& layout, const Config::Cache& cache,
                                    const ChosenMemory& chosen);

// The tiers of the core, for ManagerOptions: the configuration's, of those sizes.
std::vector<TierSpec> TiersOf(const Config::Cache& cache, const SizingPlan& sizes);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CACHE_PRIMARY_MEMORY_H_
