#include "engine/serve/local/local_engine.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "clients/command_line/terminal/format.h"
#include "engine/basic_cache/basic_cache_client.h"
#include "engine/gpu_self_test.h"
#include "engine/model/cuda/cuda_backend.h"
#include "engine/model/kv/kv_pools.h"
#include "pools/cuda/device.h"

namespace pagoda {
namespace {

constexpr uint32_t kDefaultContext = 4096;
// Behind a sequence's own blocks: the copy of a block that it shares, and the one that admission
// keeps free.
constexpr uint32_t kSpareBlocks = 4;
constexpr int kFirstDevice = 0;

// The first GPU, if the model can run there. Sets `report` to the self-test's result.
absl::StatusOr<MemoryPlace> FindGpu(const LocalEngine::Options& options,
                                    std::optional<GpuSelfTestReport>& report) {
  const absl::StatusOr<cuda::DeviceInfo> device = cuda::DescribeDevice(kFirstDevice);
  if (!device.ok()) return device.status();
  if (absl::Status usable = CheckCudaBackend(device->place.device); !usable.ok()) return usable;
  absl::StatusOr<GpuSelfTestReport> tested = TestGpu({.model_dir = options.engine.model_dir,
                                                      .device = device->place.device,
                                                      .kv_type = ElementTypeOf(options.kv_dtype),
                                                      .tokens_per_block = options.tokens_per_block,
                                                      .compute = options.engine.cpu.compute,
                                                      .attention = options.engine.gpu_attention,
                                                      .program = ""});
  if (!tested.ok()) return tested.status();
  if (absl::Status found = tested->Check(); !found.ok()) return found;
  report = *std::move(tested);
  return device->place;
}

// The device for the pools; none: the host.
absl::StatusOr<std::optional<MemoryPlace>> ChoosePlace(const LocalEngine::Options& options,
                                                       std::optional<GpuSelfTestReport>& report) {
  const bool wants_gpu = options.engine.backend == EngineBackend::kCuda;
  if (options.kv != KvMode::kPaged) {
    if (!wants_gpu) return std::nullopt;
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("--kv ", NameOf(KvModes(), options.kv),
                                  " computes in host memory: use --backend cpu or reference, or "
                                  "--kv paged"));
  }
  if (NeedsHostPools(options.engine.backend)) return std::nullopt;
  absl::StatusOr<MemoryPlace> gpu = FindGpu(options, report);
  if (gpu.ok()) return *gpu;
  if (wants_gpu) return gpu.status();
  return std::nullopt;
}

uint32_t ContextOf(const LocalEngine::Options& options, const ModelConfig& config) {
  const uint32_t wanted = options.context == 0 ? kDefaultContext : options.context;
  return std::min(wanted, config.max_position_embeddings);
}

absl::StatusOr<std::unique_ptr<LocalCache>> MakePagedCache(
    const LocalEngine::Options& options, CacheSpec spec, uint32_t context,
    const std::optional<MemoryPlace>& place) {
  const uint64_t tokens = std::max(context, options.cached_tokens);
  const uint64_t blocks = tokens / options.tokens_per_block + 1 + kSpareBlocks;
  if (blocks > std::numeric_limits<uint32_t>::max()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("--cached-tokens ", options.cached_tokens, " needs ", blocks,
                                  " blocks; at most ", std::numeric_limits<uint32_t>::max()));
  }
  return LocalCache::Create(
      {.spec = std::move(spec), .blocks = static_cast<uint32_t>(blocks), .device = place});
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalEngine>> LocalEngine::Create(Options options) {
  const std::string& model_dir = options.engine.model_dir;
  absl::StatusOr<ModelConfig> config = LoadModelConfig(model_dir);
  if (!config.ok()) return config.status();
  const uint32_t context = ContextOf(options, *config);
  absl::StatusOr<CacheSpec> spec =
      Engine::CacheSpecForModel(model_dir, options.tokens_per_block, options.kv_dtype);
  if (!spec.ok()) return spec.status();
  const absl::StatusOr<std::optional<MemoryPlace>> place =
      ChoosePlace(options, options.engine.gpu_report);
  if (!place.ok()) return place.status();
  auto local = absl::WrapUnique(new LocalEngine(options, context));
  absl::StatusOr<std::unique_ptr<CacheClient>> client = absl::UnknownError("not opened");
  if (options.kv == KvMode::kPaged) {
    absl::StatusOr<std::unique_ptr<LocalCache>> cache =
        MakePagedCache(options, *std::move(spec), context, *place);
    if (!cache.ok()) return cache.status();
    local->cache_ = *std::move(cache);
    client = local->cache_->OpenClient();
  } else {
    client = MakeBasicCacheClient({.spec = *std::move(spec),
                                   .max_sequences = options.max_sequences,
                                   .max_sequence_tokens = context,
                                   .pages = {.reservation = Reservation::kSparse},
                                   .arrangement = options.kv == KvMode::kFlat
                                                      ? KvArrangement::kTokenFlat
                                                      : KvArrangement::kTensorPerSequence});
  }
  if (!client.ok()) return client.status();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(std::move(options.engine), *std::move(client));
  if (!engine.ok()) return engine.status();
  local->engine_ = *std::move(engine);
  return local;
}

std::string LocalEngine::description() const {
  return absl::StrCat(engine_->description(), ", kv ", NameOf(KvModes(), kv_), " of ",
                      std::string(DTypeName(kv_dtype_)), ", context ",
                      FormatCounted(context_, "token"));
}

}  // namespace pagoda
