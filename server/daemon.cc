#include "server/daemon.h"

#include <filesystem>
#include <functional>
#include <random>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "pools/shared_memory.h"
#include "pools/sizing.h"
#include "server/health.h"
#include "server/log.h"
#include "server/translate.h"

namespace pagoda::server {
namespace {

// How long a session may outlive its lease.
constexpr absl::Duration kLeaseCheckInterval = absl::Milliseconds(100);

// How late a priority or a pin may expire, and how often blocks are moved down ahead of need: so
// many at a time, so many times, unless so many copies wait already.
constexpr absl::Duration kMaintenanceInterval = absl::Milliseconds(20);
constexpr uint32_t kMaintenanceBlocks = 64;
constexpr uint32_t kMaintenancePieces = 16;
constexpr size_t kMaxQueuedCopies = 1024;

// For connections without calls to say goodbye; a client that is idle may not even look.
constexpr absl::Duration kConnectionGrace = absl::Milliseconds(200);

constexpr char kIndex[] =
    "pagodad\n\n"
    "/metrics  for Prometheus\n"
    "/readyz   200 where it takes work, 503 while it starts or drains; also as /healthz\n"
    "/livez    200 also in a drain, 503 where the core is stuck\n";

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Never 0, which stands for "whichever is current" on the wire.
Epoch RandomEpoch() { return Epoch(RandomNumber() | 1); }

absl::StatusOr<CacheSpec> MakeSpec(const Config& config) {
  const Config::Cache& cache = config.cache;
  if (!config.engine.model_dir.empty()) {
    absl::StatusOr<CacheSpec> spec =
        Engine::CacheSpecForModel(config.engine.model_dir, cache.tokens_per_block, cache.kv_dtype);
    if (spec.ok()) spec->name = cache.name;
    return spec;
  }
  CacheSpec spec{.name = cache.name, .tokens_per_block = cache.tokens_per_block};
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

// The configured budget; a share is one of what is free now.
absl::StatusOr<TierBudget> BudgetNow(TierBudget budget) {
  if (auto* fraction = std::get_if<FractionBudget>(&budget)) {
    const absl::StatusOr<uint64_t> free_bytes = FreeSharedMemoryBytes();
    if (!free_bytes.ok()) return free_bytes.status();
    fraction->free_bytes = *free_bytes;
  }
  return budget;
}

absl::StatusOr<SizingPlan> SizesNow(const CacheLayout& layout, const Config::Cache& cache) {
  const absl::StatusOr<TierBudget> primary = BudgetNow(cache.primary);
  if (!primary.ok()) return primary.status();
  const absl::StatusOr<TierBudget> secondary = BudgetNow(cache.secondary);
  if (!secondary.ok()) return secondary.status();
  return PlanSizes(layout, {.workload = {.max_sequence_tokens = cache.workload.sequence_tokens,
                                         .chunk_tokens = cache.workload.chunk_tokens},
                            .primary = *primary,
                            .secondary = *secondary});
}

// Part of the names of the shared memory. The same for each start of the same configuration, so
// that a daemon takes over what a killed one left; another for a daemon at another address.
std::string InstanceName(const Config& config) {
  const std::string address =
      absl::StrCat(config.server.unix_socket, " ", config.server.grpc_address);
  const auto hash = static_cast<uint32_t>(std::hash<std::string>{}(address));
  return absl::StrCat(config.cache.name, "-", absl::Hex(hash, absl::kZeroPad8));
}

// The model's name as operators know it: the last part of its folder's path.
std::string ModelName(const std::string& model_dir) {
  const std::filesystem::path path(model_dir);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(
    Config config, const std::vector<grpc::Service*>& extra_services) {
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  auto daemon = absl::WrapUnique(new Daemon(std::move(config), absl::Now()));
  if (absl::Status status = daemon->ResolveAddresses(); !status.ok()) return status;
  if (absl::Status status = daemon->MakeCache(); !status.ok()) return status;
  if (absl::Status status = daemon->LoadEngine(); !status.ok()) return status;
  daemon->MakeServices();
  if (absl::Status status = daemon->Listen(extra_services); !status.ok()) return status;
  return daemon;
}

absl::Status Daemon::ResolveAddresses() {
  for (const auto& [text, parse, address] :
       {std::tuple(&config_.server.grpc_address, &ParseLoopbackAddress, &grpc_address_),
        std::tuple(&config_.server.http_address, &ParseAddress, &http_address_)}) {
    if (text->empty()) continue;
    absl::StatusOr<TcpAddress> parsed = parse(*text);
    if (!parsed.ok()) return parsed.status();
    if (absl::Status status = CheckCanListen(*parsed); !status.ok()) return status;
    *address = *std::move(parsed);
  }
  if (http_address_.has_value() && !IsLoopback(*http_address_)) {
    Log(LogLevel::kInfo,
        absl::StrCat("metrics and probes are open to other machines, without TLS: ",
                     http_address_->ToString()));
  }
  return absl::OkStatus();
}

absl::Status Daemon::MakeCache() {
  supervisor_.Status("starting: taking the memory of the pools");
  absl::StatusOr<CacheSpec> spec = MakeSpec(config_);
  if (!spec.ok()) return spec.status();
  absl::StatusOr<CacheLayout> layout = CacheLayout::Create(*std::move(spec));
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);

  const absl::StatusOr<SizingPlan> sizes = SizesNow(*layout_, config_.cache);
  if (!sizes.ok()) return sizes.status();
  absl::StatusOr<std::unique_ptr<PoolSet>> pools =
      PoolSet::Create(*layout_, sizes->slots(), InstanceName(config_));
  if (!pools.ok()) return pools.status();
  pools_ = *std::move(pools);

  const Config::Cache& cache = config_.cache;
  absl::StatusOr<std::unique_ptr<BlockManager>> core = BlockManager::Create(
      {.layout = *layout_,
       .primary_blocks = sizes->blocks(Tier::kPrimary),
       .secondary_blocks = sizes->blocks(Tier::kSecondary),
       .max_holes = cache.max_holes,
       .eviction_policy = cache.eviction_policy,
       .offload_min_priority = Priority(static_cast<uint8_t>(cache.offload.min_priority)),
       .offload_watermark_permille = cache.offload.watermark_permille,
       .pin_budget_permille = cache.pin_budget_permille,
       .pool_mappings = pools_->Mappings(),
       .lifecycle_events = config_.events.lifecycle,
       .epoch = RandomEpoch(),
       .seed = RandomNumber(),
       .max_sessions = config_.server.max_sessions,
       .start_time = start_time_});
  if (!core.ok()) return core.status();
  log_ = std::make_unique<EventLog>(EventLog::Limits{.max_events = config_.events.max_events,
                                                     .max_bytes = config_.events.max_bytes});
  manager_ = std::make_unique<SharedManager>(*std::move(core), log_.get());
  transfers_ = std::make_unique<HostTransfers>(
      pools_.get(), HostTransfers::Options{.num_threads = cache.offload.copy_threads},
      [this](Ticket ticket, const absl::Status& status) { OnCopyDone(ticket, status); });
  manager_->SetTransfers(transfers_.get());
  return absl::OkStatus();
}

void Daemon::OnCopyDone(Ticket ticket, const absl::Status& status) {
  if (!status.ok() && !absl::IsCancelled(status)) {
    Log(LogLevel::kError, absl::StrCat("copy ", ticket.value(), " failed: ", status.ToString()));
  }
  manager_->CompleteCopy(ticket, status);
}

absl::Status Daemon::LoadEngine() {
  if (config_.engine.model_dir.empty()) return absl::OkStatus();
  supervisor_.Status(absl::StrCat("starting: loading the model ", config_.engine.model_dir));
  absl::StatusOr<std::unique_ptr<CacheClient>> client =
      OpenLocalCacheClient(manager_.get(), "engine");
  if (!client.ok()) return client.status();
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create({.model_dir = config_.engine.model_dir,
                      .prefill_chunk_tokens = config_.engine.prefill_chunk_tokens},
                     *std::move(client));
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  Log(LogLevel::kInfo, absl::StrCat("model loaded: ", config_.engine.model_dir));
  return absl::OkStatus();
}

void Daemon::MakeServices() {
  cache_service_ = std::make_unique<CacheService>(
      CacheService::Options{.default_lease = config_.sessions.default_lease,
                            .max_lease = config_.sessions.max_lease},
      manager_.get(), &state_, &rpc_metrics_);
  event_service_ = std::make_unique<EventService>(
      EventPump::Options{.flush_interval = config_.events.flush_interval,
                         .progress_interval = config_.events.progress_interval},
      manager_.get(), &state_);
  engine_service_ =
      std::make_unique<EngineService>(engine_.get(), ModelName(config_.engine.model_dir), &state_);
  const DaemonParts parts = {.manager = manager_.get(),
                             .transfers = transfers_.get(),
                             .layout = &*layout_,
                             .events = event_service_.get(),
                             .engine = engine_service_.get(),
                             .state = &state_,
                             .start_time = start_time_};
  admin_service_ = std::make_unique<AdminService>(parts);
  metrics_ = std::make_unique<Metrics>(parts, &rpc_metrics_);
  heartbeat_ = std::make_unique<Heartbeat>(HeartbeatInterval(supervisor_.watchdog_timeout()),
                                           manager_.get(), &supervisor_);
  lease_timer_ = std::make_unique<PeriodicTask>(kLeaseCheckInterval, [this] {
    if (const size_t expired = manager_->ExpireSessions(); expired > 0) {
      Log(LogLevel::kWarning, absl::StrCat(expired, " sessions closed: their leases ran out"));
    }
    cache_service_->SweepAnswers();
  });
  maintenance_timer_ = std::make_unique<PeriodicTask>(kMaintenanceInterval, [this] { Maintain(); });
}

// In pieces, so that nobody waits long for the core's lock. Faster than copies are made, it would
// only fill their queue.
void Daemon::Maintain() {
  if (transfers_->stats().queued > kMaxQueuedCopies) return;
  for (uint32_t piece = 0; piece < kMaintenancePieces; ++piece) {
    if (manager_->Maintain(kMaintenanceBlocks) < kMaintenanceBlocks) return;
  }
}

absl::Status Daemon::Listen(const std::vector<grpc::Service*>& extra_services) {
  if (absl::Status status = ListenHttp(); !status.ok()) return status;
  GrpcServer::Options options{
      .unix_socket = config_.server.unix_socket,
      .tcp = grpc_address_,
      .max_message_bytes = static_cast<int>(config_.server.max_message_bytes),
      .reflection =
          config_.server.reflection ? GrpcServer::Reflection::kOn : GrpcServer::Reflection::kOff,
      .services = {cache_service_.get(), event_service_.get(), engine_service_.get(),
                   admin_service_.get()},
      .interceptors = rpc_metrics_.MakeInterceptorFactory()};
  options.services.insert(options.services.end(), extra_services.begin(), extra_services.end());
  absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(std::move(options));
  if (!server.ok()) return server.status();
  grpc_ = *std::move(server);
  state_.Enter(ServingState::Phase::kServing);
  grpc_->SetServing();
  supervisor_.Ready(absl::StrCat("serving gRPC on ", absl::StrJoin(grpc_endpoints(), " and ")));
  return absl::OkStatus();
}

absl::Status Daemon::ListenHttp() {
  if (!http_address_.has_value()) return absl::OkStatus();
  const auto readiness = [this] { return Readiness(state_.phase(), heartbeat_->waiting()); };
  HttpServer::Routes routes = {{"/", [] { return HttpResponse{.body = kIndex}; }},
                               {"/livez", [this] { return Liveness(heartbeat_->waiting()); }},
                               {"/readyz", readiness},
                               {"/healthz", readiness},
                               {"/metrics", [this] {
                                  return HttpResponse{
                                      .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                      .body = metrics_->Text()};
                                }}};
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(*http_address_, std::move(routes));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

Daemon::~Daemon() {
  Drain();
  // Copies that have not begun end as cancelled; the manager hears of them, and orders none.
  maintenance_timer_.reset();
  if (transfers_ == nullptr) return;
  transfers_->Stop();
  manager_->SetTransfers(nullptr);
}

void Daemon::Drain() {
  absl::MutexLock lock(&drain_mutex_);
  if (drained_ || grpc_ == nullptr) return;
  drained_ = true;
  state_.Enter(ServingState::Phase::kDraining);
  grpc_->SetNotServing();
  supervisor_.Stopping(absl::StrCat("draining: calls may go on for ",
                                    absl::FormatDuration(config_.server.drain_timeout)));
  cache_service_->EndStreamsForDrain();
  event_service_->EndStreamsForDrain();
  // Meanwhile new calls still get their answer, DRAINING, instead of a refused connection.
  const size_t cut = rpc_metrics_.WaitUntilNoneOpen(config_.server.drain_timeout);
  if (cut > 0)
    Log(LogLevel::kWarning, absl::StrCat("drain_timeout is over; open calls cut: ", cut));
  grpc_->Shutdown(kConnectionGrace);
  supervisor_.Status("drained");
}

}  // namespace pagoda::server
