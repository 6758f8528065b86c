#include "server/cache/served_cache.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "manager/sequences/session_endings.h"
#include "manager/warm_restart.h"
#include "pools/gpu_transfers/transfers.h"
#include "pools/memory/shared_memory.h"
#include "pools/sizing.h"
#include "server/cache/pool_pages.h"
#include "server/cache/primary_memory.h"
#include "server/config/tenant_options.h"
#include "server/engine/engine_program.h"
#include "server/log/log.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

// One call of Maintain handles up to kMaintenancePieces chunks of kMaintenanceBlocks blocks. It
// does nothing while more than kMaxQueuedCopies copies wait.
constexpr uint32_t kMaintenanceBlocks = 64;
constexpr uint32_t kMaintenancePieces = 16;
constexpr size_t kMaxQueuedCopies = 1024;

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Never 0: on the wire, 0 means the current epoch, whichever it is.
Epoch RandomEpoch() { return Epoch(RandomNumber() | 1); }

absl::StatusOr<CacheSpec> MakeSpec(const Config& config) {
  const Config::Cache& cache = config.cache;
  const std::string& model_dir =
      config.engine.model_dir.empty() ? cache.model_dir : config.engine.model_dir;
  if (!model_dir.empty()) {
    absl::StatusOr<CacheSpec> spec =
        DescribeModel(model_dir, cache.tokens_per_block, cache.kv_dtype);
    if (spec.ok()) spec->name = cache.name;
    return spec;
  }
  if (cache.model.name.empty()) {
    Log(LogLevel::kWarning,
        "cache.model has no name: the daemon cannot tell two models with the same layers apart, "
        "and would serve the KV of one to the engine of the other");
  }
  CacheSpec spec{.name = cache.name,
                 .model_fingerprint = cache.model.Identity(),
                 .tokens_per_block = cache.tokens_per_block};
  for (const Config::Cache::Layers& layers : cache.layers) {
    spec.layers.insert(spec.layers.end(), layers.count, layers.Spec(cache.kv_dtype));
  }
  return spec;
}

// What the pools take of the host's memory.
uint64_t HostBytes(const SizingPlan& sizes, bool primary_on_device) {
  uint64_t bytes = 0;
  for (size_t t = primary_on_device ? 1 : 0; t < sizes.num_tiers(); ++t) {
    if (sizes.media[t] != Medium::kDisk) bytes += sizes.bytes(Tier(t));
  }
  return bytes;
}

// The value for ManagerOptions::publish_min_uses.
std::optional<uint8_t> PublishMinUses(const Config::Store& store) {
  if (!store.enabled() || !store.publish.enabled) return std::nullopt;
  return static_cast<uint8_t>(store.publish.min_uses);
}

// The value for BlockManager::Options::max_holes.
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

// Part of the names of the shared memory. Each start of the same configuration has the same name,
// so that a daemon adopts the memory that a killed one left. A daemon at another address has
// another name.
std::string InstanceName(const Config& config, uint32_t number) {
  std::string name = absl::StrCat(config.cache.name, "-", AddressHash(config));
  // A second cache of the same name can be opened before the memory of a dropped one is freed.
  if (number > 0) absl::StrAppend(&name, "-", number);
  return name;
}

// The calls of the writers' table to the core.
WriterProcesses::Core CoreOf(SharedManager* manager) {
  const auto check = [=](SessionRef session) {
    return manager->Read([&](const BlockManager& core) { return core.CheckSession(session); });
  };
  return {.check = check,
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
                if (!blocks.ok()) return;  // Its client or an operator released it first.
                Log(LogLevel::kInfo,
                    absl::StrCat("session ", session.value(), ": its writers have ended; ",
                                 Counted(*blocks, "block"), " released from quarantine"));
              }};
}

// A line for each family of kernels.
void LogReport(const v1::GpuSelfTest& report) {
  for (const v1::GpuSelfTest::Kernel& kernel : report.kernels()) {
    const bool runs = kernel.outcome() == "runs" || kernel.outcome() == "right";
    Log(runs ? LogLevel::kInfo : LogLevel::kWarning,
        absl::StrCat("self-test on ", report.device(), ": ", kernel.text()));
  }
}

// The table of processes that can write to the pools.
std::string WritersName(const std::string& instance) {
  return absl::StrCat("/pagoda-", instance, "-writers");
}

}  // namespace

std::string AddressHash(const Config& config) {
  const std::string address =
      absl::StrCat(config.server.unix_socket, " ", config.server.grpc_address);
  const auto hash = static_cast<uint32_t>(std::hash<std::string>{}(address));
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad8));
}

absl::StatusOr<std::unique_ptr<ServedCache>> ServedCache::Create(Plan plan) {
  auto cache = absl::WrapUnique(new ServedCache(std::move(plan)));
  if (absl::Status status = cache->MakeLayout(); !status.ok()) return status;
  const absl::StatusOr<SizingPlan> sizes = cache->TakeMemory();
  if (!sizes.ok()) return sizes.status();
  if (absl::Status status = cache->OpenDisk(*sizes); !status.ok()) return status;
  if (absl::Status status = cache->MakeCore(*sizes); !status.ok()) return status;
  if (absl::Status status = cache->StartTransfers(); !status.ok()) return status;
  if (absl::Status status = cache->RememberWriters(); !status.ok()) return status;
  if (absl::Status status = cache->OpenInterfaces(); !status.ok()) return status;
  for (size_t t = 0; t < sizes->num_tiers(); ++t) {
    cache->parts_.tier_bytes.push_back({.medium = sizes->media[t], .bytes = sizes->bytes(Tier(t))});
  }
  return cache;
}

ServedCache::~ServedCache() { Stop(absl::InfinitePast()); }

absl::Status ServedCache::MakeLayout() {
  absl::StatusOr<CacheSpec> spec =
      plan_.spec.has_value() ? absl::StatusOr<CacheSpec>(*plan_.spec) : MakeSpec(config_);
  if (!spec.ok()) return spec.status();
  absl::StatusOr<CacheLayout> layout = CacheLayout::Create(*std::move(spec));
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);
  return absl::OkStatus();
}

absl::Status ServedCache::MakeCore(const SizingPlan& sizes) {
  const Config::Cache& cache = config_.cache;
  absl::StatusOr<std::unique_ptr<BlockManager>> core =
      BlockManager::Create({.layout = *layout_,
                            .tiers = TiersOf(cache, sizes),
                            .max_holes = cache.max_holes,
                            .eviction_policy = cache.eviction_policy,
                            .pin_budget_permille = cache.pin_budget_permille,
                            .max_pin_lease = config_.sessions.max_pin_lease,
                            .pool_mappings = pools_->Mappings(),
                            .lifecycle_events = config_.events.lifecycle,
                            .epoch = RandomEpoch(),
                            .tenants = TenantsOf(config_),
                            .default_tenant_share = config_.default_tenant_share,
                            .journal_slots = kept_ != nullptr,
                            .reuse_sample = config_.metrics.block_sample,
                            .publish_min_uses = PublishMinUses(config_.store),
                            .max_sessions = config_.server.max_sessions,
                            .last_session = LastSessionBefore(plan_.number),
                            .sequence_limits = {.max_sequences = config_.server.max_sequences,
                                                .max_bytes = config_.server.max_sequence_bytes},
                            .start_time = plan_.start_time});
  if (!core.ok()) return core.status();
  if (kept_ != nullptr) {
    absl::StatusOr<std::unique_ptr<KeptLearning>> learning =
        KeptLearning::Open(*layout_, InstanceName(config_, plan_.number), core->get());
    if (!learning.ok()) return learning.status();
    learning_ = *std::move(learning);
    Restore(**core);
  }
  if (disk_ != nullptr) {
    disk_->LogRestored((*core)->restart().RestoreDisk(disk_->TakeFound(), plan_.start_time));
  }
  log_ = std::make_unique<EventLog>(EventLog::Limits{.max_events = config_.events.max_events,
                                                     .max_bytes = config_.events.max_bytes});
  manager_ = std::make_unique<SharedManager>(*std::move(core), log_.get());
  if (kept_ != nullptr) manager_->SetSlotSink(&kept_->stamper());
  return disk_ == nullptr ? absl::OkStatus() : disk_->Start(pools_.get(), manager_.get());
}

absl::Status ServedCache::OpenDisk(const SizingPlan& sizes) {
  const auto disk = std::find(sizes.media.begin(), sizes.media.end(), Medium::kDisk);
  if (disk == sizes.media.end()) return absl::OkStatus();
  const Tier tier(disk - sizes.media.begin());
  absl::StatusOr<std::unique_ptr<DiskTier>> opened = DiskTier::Open(
      *layout_,
      {.config = config_.cache.AllTiers()[tier.value()],
       .tier = tier,
       .num_slots = sizes.blocks(tier),
       .accepts = [this](const NamespaceKey& name_space) { return Accepts(name_space); }},
      plan_.supervisor);
  if (!opened.ok()) return opened.status();
  disk_ = *std::move(opened);
  return absl::OkStatus();
}

bool ServedCache::Accepts(const NamespaceKey& name_space) const {
  return !plan_.tenants->any() || name_space.tenant.empty() ||
         plan_.tenants->Find(name_space.tenant).ok();
}

absl::Status ServedCache::StartTransfers() {
  const auto done = [this](Lane lane, Ticket ticket, const absl::Status& status) {
    OnCopyDone(lane, ticket, status);
  };
  if (pools_->place(kPrimaryTier).kind == MemoryKind::kHost) {
    auto transfers = std::make_unique<HostTransfers>(
        pools_.get(), HostTransfers::Options{.num_threads = config_.cache.offload.copy_threads},
        done);
    if (!transfers->started().ok()) return transfers->started();
    transfers_ = std::move(transfers);
  } else {
    absl::StatusOr<std::unique_ptr<Transfers>> transfers =
        cuda::MakeTransfers(pools_.get(), cuda::TransferOptions(), done);
    if (!transfers.ok()) return transfers.status();
    transfers_ = *std::move(transfers);
  }
  manager_->SetCarrier({Lane::kMemory}, transfers_.get());
  return absl::OkStatus();
}

absl::StatusOr<SizingPlan> ServedCache::TakeMemory() {
  plan_.supervisor->Status("starting: taking the memory of the pools");
  const std::string instance = InstanceName(config_, plan_.number);
  const bool begins_anew = !config_.cache.warm_restart ||
                           !SharedMemory::Open(WritersName(instance), MemoryAccess::kRead).ok();
  if (begins_anew) {
    // Memory of an earlier daemon is removed if warm_restart is off, or if the table of the
    // processes that can write to it is missing.
    absl::Status status = RemoveLeftMemory(*layout_, instance);
    status.Update(RemoveLeftLearning(*layout_, instance));
    if (!status.ok()) return status;
  }
  return MakePools(instance);
}

void ServedCache::Keep() {
  if (kept_ == nullptr) return;
  kept_->Keep();
  learning_->Keep();
  writers_->LeaveTable();
}

absl::StatusOr<SizingPlan> ServedCache::MakePools(const std::string& instance) {
  const bool warm = config_.cache.warm_restart;
  const absl::StatusOr<Config::Cache> cache =
      warm ? WithSizesOfTheLastRun(config_.cache, *layout_, instance) : config_.cache;
  if (!cache.ok()) return cache.status();
  const absl::StatusOr<ChosenMemory> chosen = ChoosePrimaryMemory(config_);
  if (!chosen.ok()) return chosen.status();
  absl::StatusOr<SizingPlan> sizes = SizesNow(*layout_, *cache, *chosen);
  if (!sizes.ok()) return sizes.status();
  PoolPlacement placement = {
      .lifetime = warm ? MemoryLifetime::kKept : MemoryLifetime::kProcess,
      .pin_lower = cache->pin_lower,
      .pages = {.huge_pages = cache->huge_pages, .reservation = plan_.reservation},
      .progress = [this](const std::string& what) {
        plan_.supervisor->Status(absl::StrCat("starting: ", what));
        Log(LogLevel::kInfo, what);
      }};
  if (chosen->device.has_value()) placement.primary_device = chosen->device->place;
  plan_.supervisor->TakingMemory(HostBytes(*sizes, chosen->device.has_value()));
  absl::StatusOr<std::unique_ptr<PoolSet>> pools =
      PoolSet::Create(*layout_, sizes->slots(), instance, placement);
  plan_.supervisor->TakingMemory(0);
  if (!pools.ok()) return pools.status();
  pools_ = *std::move(pools);
  Log(LogLevel::kInfo, absl::StrCat("the primary tier lies ", chosen->what));
  std::vector<std::string> tier_names;
  for (const Config::Cache::TierConfig& tier : cache->AllTiers()) tier_names.push_back(tier.name);
  for (const PagesLine& line : DescribePages(*pools_, tier_names, cache->huge_pages)) {
    Log(line.level, line.text);
  }
  gpu_report_ = chosen->gpu_report;
  if (gpu_report_.has_value()) LogReport(*gpu_report_);
  if (!pools_->pinned().ok()) {
    Log(LogLevel::kWarning, absl::StrCat(std::string(pools_->pinned().message()),
                                         "; copies between the tiers are slower"));
  }
  if (!warm) return sizes;
  absl::StatusOr<std::unique_ptr<KeptMemory>> kept = KeptMemory::Open(
      pools_.get(),
      {.instance = instance,
       .budgets = config_.cache,
       .max_holes = MaxHoles(config_.cache, *sizes),
       .accepts = [this](const NamespaceKey& name_space) { return Accepts(name_space); }},
      plan_.supervisor);
  if (!kept.ok()) return kept.status();
  kept_ = *std::move(kept);
  return sizes;
}

void ServedCache::Restore(BlockManager& core) {
  const absl::StatusOr<uint64_t> restored =
      core.restart().Restore(kept_->TakeFound(), plan_.start_time);
  if (!restored.ok()) {
    Log(LogLevel::kError, absl::StrCat("warm restart: the cache begins empty, because ",
                                       std::string(restored.status().message())));
    kept_->Forget();
  }
  if (!kept_->may_have_old_writers()) return;
  core.endings().QuarantineFree(plan_.start_time);
  Log(LogLevel::kWarning,
      "warm restart: clients of the last run still have the pools open; the free slots are in "
      "quarantine until these clients end");
}

void ServedCache::OnCopyDone(Lane lane, Ticket ticket, const absl::Status& status) {
  if (!status.ok() && !absl::IsCancelled(status)) {
    Log(LogLevel::kError, absl::StrCat("copy ", ticket.value(), " failed: ", status.ToString()));
  }
  manager_->Complete(lane, ticket, status);
}

absl::Status ServedCache::RememberWriters() {
  const std::string name = WritersName(InstanceName(config_, plan_.number));
  absl::StatusOr<std::unique_ptr<WriterProcesses>> writers =
      WriterProcesses::Create(name, CoreOf(manager_.get()));
  if (!writers.ok()) return writers.status();
  writers_ = *std::move(writers);
  // The table of an earlier run stays even if this start fails: its writers are still alive.
  if (kept_ != nullptr && writers_->table_was_there()) writers_->LeaveTable();
  if (kept_ == nullptr || !kept_->may_have_old_writers()) {
    // The pools are new, or no other process has them open.
    writers_->ForgetOld();
  } else if (!writers_->found_table()) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("other processes have the pools of the last run open, and the "
                                  "table of these processes, ",
                                  name, ", is damaged: end the processes, or remove the table"));
  }
  return absl::OkStatus();
}

absl::Status ServedCache::OpenInterfaces() {
  if (!config_.server.MapSocketPath().empty()) {
    absl::StatusOr<std::unique_ptr<PoolExport>> pool_export = PoolExport::Open(*pools_);
    if (!pool_export.ok()) return pool_export.status();
    pool_export_ = *std::move(pool_export);
  }
  streams_ = std::make_unique<CacheStreams>(
      EventPump::Options{.flush_interval = config_.events.flush_interval,
                         .progress_interval = config_.events.progress_interval},
      manager_.get());
  if (!streams_->started().ok()) return streams_->started();
  if (!config_.server.http_address.empty()) {
    history_ = std::make_unique<StatusHistory>(manager_.get(), transfers_.get());
    if (!history_->started().ok()) return history_->started();
  }
  StartExchange();
  parts_ = {.number = plan_.number,
            .name = config_.cache.name,
            .tenant = plan_.tenant,
            .identity = plan_.identity,
            .opened = absl::Now(),
            .manager = manager_.get(),
            .layout = &*layout_,
            .pools = pools_.get(),
            .transfers = transfers_.get(),
            .writers = writers_.get(),
            .disk = disk_.get(),
            .pool_export = pool_export_.get(),
            .streams = streams_.get(),
            .exchange = exchange_.get(),
            .history = history_.get(),
            .tier_bytes = {}};
  return absl::OkStatus();
}

void ServedCache::StartExchange() {
  exchange_ =
      std::make_unique<CacheExchange>(CacheExchange::Options{.manager = manager_.get(),
                                                             .pools = pools_.get(),
                                                             .sources = plan_.sources,
                                                             .fetch = config_.fetch,
                                                             .publish = config_.store.publish});
  const std::string& name = config_.cache.name;
  if (config_.exchanges() && !exchange_->unavailable().ok()) {
    Log(LogLevel::kWarning, absl::StrCat("cache ", name, " is not exchanged with other machines: ",
                                         std::string(exchange_->unavailable().message())));
  }
  if (plan_.peers == nullptr) return;
  const absl::Status status =
      plan_.peers->AddCache({.name = PeerName(), .manager = manager_.get(), .pools = pools_.get()});
  if (!status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("other daemons cannot read cache ", name, ": ",
                                         std::string(status.message())));
  }
}

std::string ServedCache::PeerName() const { return PeerNameOf(plan_.number, config_.cache.name); }

void ServedCache::EndExchange() {
  if (plan_.peers != nullptr) plan_.peers->RemoveCache(PeerName());
  if (exchange_ != nullptr) exchange_->Stop();
}

ServedCache::Remains ServedCache::remains() const {
  const std::vector<Config::Cache::TierConfig> tiers = config_.cache.AllTiers();
  return {.layout = *layout_,
          .instance = InstanceName(config_, plan_.number),
          .disk_folder = tiers.back().on_disk() ? tiers.back().path : ""};
}

void ServedCache::Remove(const Remains& remains) {
  absl::Status status = RemoveLeftMemory(remains.layout, remains.instance);
  status.Update(RemoveLeftLearning(remains.layout, remains.instance));
  status.Update(SharedMemory::RemoveLeftover(WritersName(remains.instance)));
  if (!remains.disk_folder.empty()) {
    std::error_code error;
    std::filesystem::remove_all(remains.disk_folder, error);
    if (error)
      status.Update(absl::InternalError(absl::StrCat(remains.disk_folder, ": ", error.message())));
  }
  if (!status.ok()) {
    Log(LogLevel::kWarning,
        absl::StrCat("cannot remove all of a dropped cache: ", std::string(status.message())));
  }
}

// Pauses while many copies wait: more offloads would only fill their queue.
void ServedCache::Maintain() {
  if (disk_ != nullptr) disk_->Watch();
  if (learning_ != nullptr) learning_->Tick(*manager_, SharedManager::Now());
  exchange_->Tick();
  if (transfers_->stats().queued > kMaxQueuedCopies) return;
  for (uint32_t piece = 0; piece < kMaintenancePieces; ++piece) {
    if (manager_->Maintain(kMaintenanceBlocks) < kMaintenanceBlocks) return;
  }
}

void ServedCache::Stop(absl::Time disk_end) {
  EndExchange();
  if (std::exchange(stopped_, true) || transfers_ == nullptr) return;
  // Waits for pending copies, so that their blocks are cached. The last disk writes can wait for
  // copies, and the last disk reads order further ones.
  if (kept_ != nullptr || disk_ != nullptr) transfers_->WaitUntilIdle();
  if (disk_ != nullptr) {
    disk_->Finish(disk_end);
    disk_->Stop();
  }
  if (kept_ != nullptr) {
    transfers_->WaitUntilIdle();
    kept_->stamper().Flush();
    kept_->stamper().Stop();
    learning_->Save(*manager_);
  }
  transfers_->Stop();
  manager_->SetCarrier({Lane::kMemory}, nullptr);
}

}  // namespace pagoda::server
