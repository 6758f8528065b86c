// The cache of a daemon: its memory, its disk, its core and the copies between them.
#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "manager/tenants.h"
#include "pools/cuda/transfers.h"
#include "pools/shared_memory.h"
#include "pools/sizing.h"
#include "server/cache/primary_memory.h"
#include "server/config/tenant_options.h"
#include "server/daemon.h"
#include "server/log.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Never 0, which stands for "whichever is current" on the wire.
Epoch RandomEpoch() { return Epoch(RandomNumber() | 1); }

absl::StatusOr<CacheSpec> MakeSpec(const Config& config) {
  const Config::Cache& cache = config.cache;
  const std::string& model_dir =
      config.engine.model_dir.empty() ? cache.model_dir : config.engine.model_dir;
  if (!model_dir.empty()) {
    absl::StatusOr<CacheSpec> spec =
        Engine::CacheSpecForModel(model_dir, cache.tokens_per_block, cache.kv_dtype);
    if (spec.ok()) spec->name = cache.name;
    return spec;
  }
  if (cache.model.name.empty()) {
    Log(LogLevel::kWarning,
        "cache.model has no name: the daemon cannot tell the engines of two models with the same "
        "layers apart, and serves each the other's KV");
  }
  CacheSpec spec{.name = cache.name,
                 .model_fingerprint = cache.model.Identity(),
                 .tokens_per_block = cache.tokens_per_block};
  for (const Config::Cache::Layers& layers : cache.layers) {
    const LayerSpec layer{.window = WindowFromProto(layers.window),
                          .num_kv_heads = layers.num_kv_heads,
                          .head_dim = layers.head_dim,
                          .dtype = cache.kv_dtype,
                          .kind = layers.kind};
    spec.layers.insert(spec.layers.end(), layers.count, layer);
  }
  return spec;
}

// As BlockManager::Options::max_holes.
uint32_t MaxHoles(const Config::Cache& cache, const SizingPlan& sizes) {
  if (cache.max_holes > 0) return cache.max_holes;
  uint32_t most_blocks = 0;
  for (const SizingPlan::WindowPlan& window : sizes.windows) {
    uint32_t blocks = 0;
    for (const SizingPlan::TierPlan& tier : window.tiers) blocks += tier.blocks;
    most_blocks = std::max(most_blocks, blocks);
  }
  return most_blocks;
}

// Part of the names of the shared memory. The same for each start of the same configuration, so
// that a daemon takes over what a killed one left; another for a daemon at another address.
std::string InstanceName(const Config& config) {
  const std::string address =
      absl::StrCat(config.server.unix_socket, " ", config.server.grpc_address);
  const auto hash = static_cast<uint32_t>(std::hash<std::string>{}(address));
  return absl::StrCat(config.cache.name, "-", absl::Hex(hash, absl::kZeroPad8));
}

// What the writers' table asks of the core.
WriterProcesses::Core CoreOf(SharedManager* manager) {
  return {.check = [=](SessionRef session) { return manager->CheckSession(session); },
          .tenant = [=](SessionRef session) -> absl::StatusOr<std::string> {
            const absl::StatusOr<TenantId> tenant = manager->TenantOf(session);
            if (!tenant.ok()) return tenant.status();
            return manager->tenants()[*tenant].name;
          },
          .remembers = [=](SessionRef session) { return manager->Remembers(session); },
          .note_writer = [=](SessionRef session) { return manager->NoteWriter(session); },
          .writers_gone = [=](SessionId session) { manager->NoteWriterGone(session); },
          .quarantined = [=] { return manager->QuarantinedSessions(); },
          .release =
              [=](SessionId session) {
                const absl::StatusOr<uint32_t> blocks = manager->ReleaseQuarantine(session);
                if (!blocks.ok()) return;  // Its client, or an operator, was first.
                Log(LogLevel::kInfo,
                    absl::StrCat("session ", session.value(), ": its writers have ended; ", *blocks,
                                 " blocks are out of quarantine"));
              }};
}

// The table of processes that can write to the pools.
std::string WritersName(const std::string& instance) {
  return absl::StrCat("/pagoda-", instance, "-writers");
}

}  // namespace

absl::Status Daemon::MakeCache() {
  absl::StatusOr<CacheSpec> spec = MakeSpec(config_);
  if (!spec.ok()) return spec.status();
  absl::StatusOr<CacheLayout> layout = CacheLayout::Create(*std::move(spec));
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);

  const absl::StatusOr<SizingPlan> sizes = TakeMemory();
  if (!sizes.ok()) return sizes.status();
  if (absl::Status status = OpenDisk(*sizes); !status.ok()) return status;

  const Config::Cache& cache = config_.cache;
  absl::StatusOr<std::unique_ptr<BlockManager>> core =
      BlockManager::Create({.layout = *layout_,
                            .tiers = TiersOf(cache, *sizes),
                            .max_holes = cache.max_holes,
                            .eviction_policy = cache.eviction_policy,
                            .pin_budget_permille = cache.pin_budget_permille,
                            .max_pin_lease = config_.sessions.max_pin_lease,
                            .pool_mappings = pools_->Mappings(),
                            .lifecycle_events = config_.events.lifecycle,
                            .epoch = RandomEpoch(),
                            .tenants = TenantsOf(config_),
                            .commons_share = config_.commons_share,
                            .journal_slots = kept_ != nullptr,
                            .lives_sample = config_.metrics.block_sample,
                            .max_sessions = config_.server.max_sessions,
                            .sequence_limits = {.max_sequences = config_.server.max_sequences,
                                                .max_bytes = config_.server.max_sequence_bytes},
                            .start_time = start_time_});
  if (!core.ok()) return core.status();
  if (kept_ != nullptr) Restore(**core);
  if (disk_ != nullptr) {
    disk_->TellRestored((*core)->RestoreDisk(disk_->TakeFound(), start_time_));
  }
  log_ = std::make_unique<EventLog>(EventLog::Limits{.max_events = config_.events.max_events,
                                                     .max_bytes = config_.events.max_bytes});
  manager_ = std::make_unique<SharedManager>(*std::move(core), log_.get());
  if (kept_ != nullptr) manager_->SetSlotSink(&kept_->stamper());
  if (disk_ != nullptr) disk_->Start(pools_.get(), manager_.get());
  return StartTransfers();
}

absl::Status Daemon::OpenDisk(const SizingPlan& sizes) {
  const auto disk = std::find(sizes.media.begin(), sizes.media.end(), Medium::kDisk);
  if (disk == sizes.media.end()) return absl::OkStatus();
  const auto index = static_cast<size_t>(disk - sizes.media.begin());
  const auto tier = static_cast<Tier>(index);
  absl::StatusOr<std::unique_ptr<DiskTier>> opened = DiskTier::Open(
      *layout_,
      {.config = config_.cache.AllTiers()[index],
       .tier = tier,
       .num_slots = sizes.blocks(tier),
       .accepts = [this](const NamespaceKey& name_space) { return Accepts(name_space); }},
      &supervisor_);
  if (!opened.ok()) return opened.status();
  disk_ = *std::move(opened);
  return absl::OkStatus();
}

bool Daemon::Accepts(const NamespaceKey& name_space) const {
  return !tenants_->any() || name_space.tenant.empty() || tenants_->Find(name_space.tenant).ok();
}

absl::Status Daemon::StartTransfers() {
  const auto done = [this](Ticket ticket, const absl::Status& status) {
    OnCopyDone(ticket, status);
  };
  if (pools_->place(Tier::kPrimary).kind == MemoryKind::kHost) {
    transfers_ = std::make_unique<HostTransfers>(
        pools_.get(), HostTransfers::Options{.num_threads = config_.cache.offload.copy_threads},
        done);
  } else {
    absl::StatusOr<std::unique_ptr<Transfers>> transfers =
        cuda::MakeTransfers(pools_.get(), cuda::TransferOptions(), done);
    if (!transfers.ok()) return transfers.status();
    transfers_ = *std::move(transfers);
  }
  manager_->SetTransfers(transfers_.get());
  return absl::OkStatus();
}

absl::StatusOr<SizingPlan> Daemon::TakeMemory() {
  supervisor_.Status("starting: taking the memory of the pools");
  const std::string instance = InstanceName(config_);
  const bool begins_anew = !config_.cache.warm_restart ||
                           !SharedMemory::Open(WritersName(instance), MemoryAccess::kRead).ok();
  if (begins_anew) {
    // What a daemon kept goes where it is not wanted, and where nobody knows who can write to it.
    if (absl::Status status = RemoveLeftMemory(*layout_, instance); !status.ok()) return status;
  }
  return MakePools(instance);
}

void Daemon::KeepMemory() {
  if (kept_ == nullptr) return;
  kept_->Keep();
  writers_->LeaveTable();
}

absl::StatusOr<SizingPlan> Daemon::MakePools(const std::string& instance) {
  const bool warm = config_.cache.warm_restart;
  const absl::StatusOr<Config::Cache> cache =
      warm ? WithSizesOfTheLastRun(config_.cache, *layout_, instance) : config_.cache;
  if (!cache.ok()) return cache.status();
  const absl::StatusOr<ChosenMemory> chosen = ChoosePrimaryMemory(config_);
  if (!chosen.ok()) return chosen.status();
  absl::StatusOr<SizingPlan> sizes = SizesNow(*layout_, *cache, *chosen);
  if (!sizes.ok()) return sizes.status();
  PoolPlacement placement = {.lifetime = warm ? MemoryLifetime::kKept : MemoryLifetime::kProcess,
                             .pin_secondary = cache->pin_secondary,
                             .progress = [this](const std::string& what) {
                               supervisor_.Status(absl::StrCat("starting: ", what));
                               Log(LogLevel::kInfo, what);
                             }};
  if (chosen->device.has_value()) placement.primary_device = chosen->device->place;
  absl::StatusOr<std::unique_ptr<PoolSet>> pools =
      PoolSet::Create(*layout_, sizes->slots(), instance, placement);
  if (!pools.ok()) return pools.status();
  pools_ = *std::move(pools);
  Log(LogLevel::kInfo, absl::StrCat("the primary tier lies ", chosen->what));
  if (!pools_->pinned().ok()) {
    Log(LogLevel::kWarning, absl::StrCat(std::string(pools_->pinned().message()),
                                         "; copies between the tiers go on, slower"));
  }
  if (!warm) return sizes;
  absl::StatusOr<std::unique_ptr<KeptMemory>> kept = KeptMemory::Open(
      pools_.get(),
      {.instance = instance,
       .budgets = config_.cache,
       .max_holes = MaxHoles(config_.cache, *sizes),
       .accepts = [this](const NamespaceKey& name_space) { return Accepts(name_space); }},
      &supervisor_);
  if (!kept.ok()) return kept.status();
  kept_ = *std::move(kept);
  return sizes;
}

void Daemon::Restore(BlockManager& core) {
  const absl::StatusOr<uint64_t> restored = core.Restore(kept_->TakeFound(), start_time_);
  if (!restored.ok()) {
    Log(LogLevel::kError, absl::StrCat("warm restart: the cache begins empty, because ",
                                       std::string(restored.status().message())));
    kept_->Forget();
  }
  if (!kept_->may_have_old_writers()) return;
  core.QuarantineFree(start_time_);
  Log(LogLevel::kWarning,
      "warm restart: clients of the last run have the pools open; what was not cached is in "
      "quarantine until they end");
}

void Daemon::OnCopyDone(Ticket ticket, const absl::Status& status) {
  if (!status.ok() && !absl::IsCancelled(status)) {
    Log(LogLevel::kError, absl::StrCat("copy ", ticket.value(), " failed: ", status.ToString()));
  }
  manager_->CompleteCopy(ticket, status);
}

absl::Status Daemon::RememberWriters() {
  const std::string name = WritersName(InstanceName(config_));
  absl::StatusOr<std::unique_ptr<WriterProcesses>> writers =
      WriterProcesses::Create(name, CoreOf(manager_.get()));
  if (!writers.ok()) return writers.status();
  writers_ = *std::move(writers);
  // The table of an earlier run stays also where this start fails: its writers still live.
  if (kept_ != nullptr && writers_->table_was_there()) writers_->LeaveTable();
  if (kept_ == nullptr || !kept_->may_have_old_writers()) {
    // The pools are new, or nobody else has them open.
    writers_->ForgetOld();
  } else if (!writers_->found_table()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("other processes have the pools of the last run open, and which "
                                  "is not known: ",
                                  name, " is damaged; end them, or remove it"));
  }
  return absl::OkStatus();
}

}  // namespace pagoda::server
