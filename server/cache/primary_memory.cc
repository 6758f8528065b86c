#include "server/cache/primary_memory.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "pools/memory/shared_memory.h"

namespace pagoda::server {
namespace {

ChosenMemory OnHost(const std::string& why) {
  return {.device = std::nullopt, .what = absl::StrCat("in host memory: ", why)};
}

// The budget; a share with the bytes that are free now.
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

// The same error with another message.
absl::Status Renamed(const absl::Status& status, const std::string& message) {
  const Reason reason = ReasonOf(status);
  return reason == Reason::kNone ? absl::Status(status.code(), message)
                                 : MakeError(reason, message);
}

// The key that asks for a GPU, or for kernels that only a GPU has, with its value. Empty: all such
// keys are auto.
std::string NameOfWish(const Config& config) {
  if (config.cache.primary_memory == PrimaryMemory::kCuda) return "cache.primary_memory is cuda";
  if (config.engine.backend == EngineBackend::kCuda) return "engine.backend is cuda";
  if (config.engine.gpu_attention == GpuAttention::kAuto) return "";
  return absl::StrCat("engine.gpu_attention is ",
                      NameOf(GpuAttentions(), config.engine.gpu_attention));
}

// Asks the engine's program whether it finds kernels on the chosen device.
absl::StatusOr<v1::GpuSelfTest> TestEngine(const Config& config, const GpuProbes& probes,
                                           int device) {
  return probes.self_test({.model_dir = config.engine.model_dir,
                           .device = device,
                           .tokens_per_block = config.cache.tokens_per_block,
                           .kv_dtype = config.cache.kv_dtype,
                           .compute = config.engine.compute,
                           .attention = config.engine.gpu_attention});
}

}  // namespace

absl::StatusOr<ChosenMemory> ChoosePrimaryMemory(const Config& config, const GpuProbes& probes) {
  const Config::Cache& cache = config.cache;
  const bool has_engine = !config.engine.model_dir.empty();
  // An engine with backend cuda requires the tier on the GPU.
  const bool automatic = cache.primary_memory == PrimaryMemory::kAuto &&
                         !(has_engine && config.engine.backend == EngineBackend::kCuda);
  if (cache.primary_memory == PrimaryMemory::kHost) return OnHost("cache.primary_memory says so");
  if (automatic && has_engine && NeedsHostPools(config.engine.backend)) {
    return OnHost("the daemon's own engine runs on the CPU (engine.backend)");
  }
  if (automatic && cache.warm_restart) {
    return OnHost("cache.warm_restart needs memory that outlives the daemon");
  }
  if (automatic && cache.has_disk() && cache.tiers.size() == 2) {
    return OnHost("the tier below it is on disk, which takes blocks only from host memory");
  }
  const absl::StatusOr<cuda::DeviceInfo> device = probes.describe(static_cast<int>(cache.device));
  if (device.ok()) {
    ChosenMemory chosen{.device = *device,
                        .what = absl::StrCat("in GPU memory: ", PlaceName(device->place), ", ",
                                             device->name, ", with ", device->free_bytes >> 20,
                                             " of ", device->total_bytes >> 20, " MiB free"),
                        .gpu_report = std::nullopt};
    if (!has_engine) return chosen;
    absl::StatusOr<v1::GpuSelfTest> test = TestEngine(config, probes, device->place.device);
    const bool no_backend = test.ok() && test->no_backend();
    // If the device is required and lacks a backend, the engine reports it.
    if (no_backend && !automatic) return chosen;
    const absl::Status usable = !test.ok()            ? test.status()
                                : test->has_problem() ? StatusOf(test->problem())
                                                      : absl::OkStatus();
    if (test.ok() && !no_backend) chosen.gpu_report = *std::move(test);
    if (usable.ok()) return chosen;
    const std::string why = absl::StrCat("the daemon's own engine cannot compute on ",
                                         PlaceName(device->place), ": ", usable.message());
    const std::string wish = NameOfWish(config);
    if (wish.empty() || no_backend) {
      ChosenMemory host = OnHost(why);
      host.gpu_report = std::move(chosen.gpu_report);
      return host;
    }
    return Renamed(usable, absl::StrCat(wish, ", and ", why));
  }
  const std::string message(device.status().message());
  if (automatic) return OnHost(message);
  const std::string what = absl::StrCat(
      cache.primary_memory == PrimaryMemory::kCuda ? "cache.primary_memory" : "engine.backend",
      " is cuda, and cache.device ", cache.device, " cannot be used: ", message);
  return Renamed(device.status(), what);
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
                     .blocks = sizes.blocks(Tier(t)),
                     .min_priority = Priority(static_cast<uint8_t>(tier.min_priority)),
                     .watermark_permille = tier.watermark_permille,
                     .write_bytes_per_second = tier.write_bytes_per_second});
  }
  return tiers;
}

}  // namespace pagoda::server
