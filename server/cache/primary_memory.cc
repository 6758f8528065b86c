#include "server/cache/primary_memory.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "engine/model/cuda/cuda_backend.h"
#include "pools/shared_memory.h"

namespace pagoda::server {
namespace {

ChosenMemory OnHost(const std::string& why) {
  return {.device = std::nullopt, .what = absl::StrCat("in host memory: ", why)};
}

// The budget with what a share is one of.
absl::StatusOr<TierBudget> BudgetNow(TierBudget budget,
                                     const std::optional<cuda::DeviceInfo>& device) {
  auto* const fraction = std::get_if<FractionBudget>(&budget);
  if (fraction == nullptr) return budget;
  if (device.has_value()) {
    fraction->free_bytes = device->free_bytes;
    return budget;
  }
  const absl::StatusOr<uint64_t> free_bytes = FreeSharedMemoryBytes();
  if (!free_bytes.ok()) return free_bytes.status();
  fraction->free_bytes = *free_bytes;
  return budget;
}

}  // namespace

absl::StatusOr<ChosenMemory> ChoosePrimaryMemory(const Config& config) {
  const Config::Cache& cache = config.cache;
  const bool has_engine = !config.engine.model_dir.empty() && config.engine.kv == KvMode::kPaged;
  // An engine that has to be on the GPU takes the tier there.
  const bool automatic = cache.primary_memory == PrimaryMemory::kAuto &&
                         !(has_engine && config.engine.backend == EngineBackend::kCuda);
  if (cache.primary_memory == PrimaryMemory::kHost) return OnHost("cache.primary_memory says so");
  if (automatic && has_engine && config.engine.backend == EngineBackend::kCpu) {
    return OnHost("the daemon's own engine runs on the CPU (engine.backend)");
  }
  if (automatic && cache.warm_restart) {
    return OnHost("cache.warm_restart keeps what GPU memory cannot");
  }
  if (automatic && cache.has_disk() && cache.tiers.size() == 2) {
    return OnHost("the tier below it is on disk, which takes blocks from host memory alone");
  }
  const absl::StatusOr<cuda::DeviceInfo> device =
      cuda::DescribeDevice(static_cast<int>(cache.device));
  if (automatic && has_engine && device.ok()) {
    const absl::Status engine = CheckCudaBackend(static_cast<int>(cache.device));
    if (!engine.ok()) {
      return OnHost(absl::StrCat("the daemon's own engine cannot compute on ",
                                 PlaceName(device->place), ": ", engine.message()));
    }
  }
  if (device.ok()) {
    return ChosenMemory{.device = *device,
                        .what = absl::StrCat("in GPU memory: ", PlaceName(device->place), ", ",
                                             device->name, ", with ", device->free_bytes >> 20,
                                             " of ", device->total_bytes >> 20, " MiB free")};
  }
  const std::string message(device.status().message());
  if (automatic) return OnHost(message);
  const std::string what = absl::StrCat(
      cache.primary_memory == PrimaryMemory::kCuda ? "cache.primary_memory" : "engine.backend",
      " is cuda, and cache.device ", cache.device, " cannot be used: ", message);
  const Reason reason = ReasonOf(device.status());
  return reason == Reason::kNone ? absl::Status(device.status().code(), what)
                                 : MakeError(reason, what);
}

absl::StatusOr<SizingPlan> SizesNow(const CacheLayout& layout, const Config::Cache& cache,
                                    const ChosenMemory& chosen) {
  SizingRequest request{.workload = {.max_sequence_tokens = cache.workload.sequence_tokens,
                                     .chunk_tokens = cache.workload.chunk_tokens}};
  for (const Config::Cache::TierConfig& tier : cache.AllTiers()) {
    const bool is_first = request.tiers.empty();
    const absl::StatusOr<TierBudget> budget =
        BudgetNow(tier.size, is_first ? chosen.device : std::nullopt);
    if (!budget.ok()) return budget.status();
    request.tiers.push_back({.budget = *budget,
                             .medium = is_first && chosen.device.has_value() ? Medium::kGpu
                                       : tier.on_disk()                      ? Medium::kDisk
                                                                             : Medium::kHost,
                             .name = tier.name});
  }
  return PlanSizes(layout, request);
}

std::vector<TierSpec> TiersOf(const Config::Cache& cache, const SizingPlan& sizes) {
  std::vector<TierSpec> tiers;
  for (const Config::Cache::TierConfig& tier : cache.AllTiers()) {
    const size_t t = tiers.size();
    tiers.push_back({.name = tier.name,
                     .medium = sizes.media[t],
                     .blocks = sizes.blocks(static_cast<Tier>(t)),
                     .min_priority = Priority(static_cast<uint8_t>(tier.min_priority)),
                     .watermark_permille = tier.watermark_permille,
                     .write_bytes_per_second = tier.write_bytes_per_second});
  }
  return tiers;
}

}  // namespace pagoda::server
