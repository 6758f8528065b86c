#include "server/daemon.h"

#include <filesystem>
#include <functional>
#include <random>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/log.h"

namespace pagoda::server {
namespace {

// How long a session may outlive its lease.
constexpr absl::Duration kLeaseCheckInterval = absl::Milliseconds(100);

// For connections without calls to say goodbye; a client that is idle may not even look.
constexpr absl::Duration kConnectionGrace = absl::Milliseconds(200);

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
  const LayerSpec layer{.num_kv_heads = cache.layers.num_kv_heads,
                        .head_dim = cache.layers.head_dim,
                        .dtype = cache.kv_dtype};
  return CacheSpec{.name = cache.name,
                   .tokens_per_block = cache.tokens_per_block,
                   .layers = std::vector<LayerSpec>(cache.layers.count, layer)};
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

std::string PhaseText(ServingState::Phase phase) {
  switch (phase) {
    case ServingState::Phase::kStarting:
      return "starting\n";
    case ServingState::Phase::kServing:
      return "ok\n";
    case ServingState::Phase::kDraining:
      return "draining\n";
  }
  return "";
}

HttpResponse HealthResponse(ServingState::Phase phase) {
  return {.status = phase == ServingState::Phase::kServing ? 200 : 503, .body = PhaseText(phase)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(Config config) {
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  auto daemon = absl::WrapUnique(new Daemon(std::move(config), absl::Now()));
  if (absl::Status status = daemon->ResolveAddresses(); !status.ok()) return status;
  if (absl::Status status = daemon->MakeCache(); !status.ok()) return status;
  if (absl::Status status = daemon->LoadEngine(); !status.ok()) return status;
  daemon->MakeServices();
  if (absl::Status status = daemon->Listen(); !status.ok()) return status;
  return daemon;
}

absl::Status Daemon::ResolveAddresses() {
  for (const auto& [text, address] : {std::pair(&config_.server.grpc_address, &grpc_address_),
                                      std::pair(&config_.server.http_address, &http_address_)}) {
    if (text->empty()) continue;
    absl::StatusOr<TcpAddress> parsed = ParseLoopbackAddress(*text);
    if (!parsed.ok()) return parsed.status();
    if (absl::Status status = CheckCanListen(*parsed); !status.ok()) return status;
    *address = *std::move(parsed);
  }
  return absl::OkStatus();
}

absl::Status Daemon::MakeCache() {
  absl::StatusOr<CacheSpec> spec = MakeSpec(config_);
  if (!spec.ok()) return spec.status();
  absl::StatusOr<CacheLayout> layout = CacheLayout::Create(*std::move(spec));
  if (!layout.ok()) return layout.status();
  layout_ = *std::move(layout);

  const std::vector<uint32_t> blocks(layout_->windows().size(), config_.cache.primary_blocks);
  absl::StatusOr<std::unique_ptr<PoolSet>> pools =
      PoolSet::Create(*layout_, blocks, InstanceName(config_));
  if (!pools.ok()) return pools.status();
  pools_ = *std::move(pools);

  absl::StatusOr<std::unique_ptr<BlockManager>> core =
      BlockManager::Create({.layout = *layout_,
                            .primary_blocks = blocks,
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
  return absl::OkStatus();
}

absl::Status Daemon::LoadEngine() {
  if (config_.engine.model_dir.empty()) return absl::OkStatus();
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
      manager_.get(), &state_);
  event_service_ = std::make_unique<EventService>(
      EventPump::Options{.flush_interval = config_.events.flush_interval,
                         .progress_interval = config_.events.progress_interval},
      manager_.get(), &state_);
  engine_service_ =
      std::make_unique<EngineService>(engine_.get(), ModelName(config_.engine.model_dir), &state_);
  const DaemonParts parts = {.manager = manager_.get(),
                             .layout = &*layout_,
                             .events = event_service_.get(),
                             .engine = engine_service_.get(),
                             .state = &state_,
                             .start_time = start_time_};
  admin_service_ = std::make_unique<AdminService>(parts);
  metrics_ = std::make_unique<Metrics>(parts, &rpc_metrics_);
  lease_timer_ = std::make_unique<PeriodicTask>(kLeaseCheckInterval, [this] {
    if (const size_t expired = manager_->ExpireSessions(); expired > 0) {
      Log(LogLevel::kWarning, absl::StrCat(expired, " sessions closed: their leases ran out"));
    }
  });
}

absl::Status Daemon::Listen() {
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
  absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(std::move(options));
  if (!server.ok()) return server.status();
  grpc_ = *std::move(server);
  state_.Enter(ServingState::Phase::kServing);
  grpc_->SetServing();
  return absl::OkStatus();
}

absl::Status Daemon::ListenHttp() {
  if (!http_address_.has_value()) return absl::OkStatus();
  HttpServer::Routes routes = {
      {"/",
       [] {
         return HttpResponse{.body =
                                 "pagodad\n\n/metrics  for Prometheus\n/healthz  for "
                                 "probes: 200 or 503\n"};
       }},
      {"/healthz", [this] { return HealthResponse(state_.phase()); }},
      {"/metrics", [this] {
         return HttpResponse{.content_type = "text/plain; version=0.0.4; charset=utf-8",
                             .body = metrics_->Text()};
       }}};
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(*http_address_, std::move(routes));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

Daemon::~Daemon() { Drain(); }

void Daemon::Drain() {
  absl::MutexLock lock(&drain_mutex_);
  if (drained_ || grpc_ == nullptr) return;
  drained_ = true;
  state_.Enter(ServingState::Phase::kDraining);
  grpc_->SetNotServing();
  cache_service_->EndStreamsForDrain();
  event_service_->EndStreamsForDrain();
  // Meanwhile new calls still get their answer, DRAINING, instead of a refused connection.
  const size_t cut = rpc_metrics_.WaitUntilNoneOpen(config_.server.drain_timeout);
  if (cut > 0)
    Log(LogLevel::kWarning, absl::StrCat("drain_timeout is over; open calls cut: ", cut));
  grpc_->Shutdown(kConnectionGrace);
}

}  // namespace pagoda::server
