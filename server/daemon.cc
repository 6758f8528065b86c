#include "server/daemon.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/accounts/tenants.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/admin.grpc.pb.h"
#include "pagoda/v1/cache.grpc.pb.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "server/admin/admin_service.h"
#include "server/bridges/bridges.h"
#include "server/cache/cache_opener.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/calls/rpc_metrics.h"
#include "server/config/tenant_options.h"
#include "server/directory/cache_directory.h"
#include "server/engine/engine_child.h"
#include "server/http/gzip.h"
#include "server/http/health.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/http/status_api.h"
#include "server/http/status_page.h"
#include "server/listener/connection_limit.h"
#include "server/listener/header_guard.h"
#include "server/listener/listener_watch.h"
#include "server/log/log.h"
#include "server/memory/map_socket.h"
#include "server/metrics/metrics.h"
#include "server/peers/peer_server.h"
#include "server/rpc/cache_service.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/reflection_service.h"
#include "server/rpc/tls_credentials.h"
#include "server/store/sources.h"
#include "server/supervision/heartbeat.h"
#include "server/supervision/periodic_task.h"
#include "server/watch/event_service.h"
#include "vllm/grpc/engine.grpc.pb.h"

namespace pagoda::server {
namespace {

// The longest time a session can outlive its lease.
constexpr absl::Duration kLeaseCheckInterval = absl::Milliseconds(100);

// The longest time until a new token works, or a removed one no longer does.
constexpr absl::Duration kTokensCheckInterval = absl::Seconds(1);

// The longest delay until a priority or a pin expires. Blocks are offloaded ahead of need this
// often.
constexpr absl::Duration kMaintenanceInterval = absl::Milliseconds(20);

// The engine's time to answer the callers whose generations it cuts at the end of drain_timeout.
constexpr absl::Duration kEngineGrace = absl::Seconds(2);

// The least time of the other clients' calls, once the engine has ended.
constexpr absl::Duration kOthersGrace = absl::Seconds(1);

// The disk tier's time for its last writes if the calls took all of drain_timeout.
constexpr absl::Duration kDiskGrace = absl::Seconds(2);

// Time for idle connections to close cleanly. An idle client may not even notice.
constexpr absl::Duration kConnectionGrace = absl::Milliseconds(200);

// nullptr if gRPC speaks plaintext.
absl::StatusOr<std::shared_ptr<TlsCredentials>> MakeTls(const Config::Server& server) {
  if (!server.tls.enabled() || server.grpc_address.empty()) return nullptr;
  return TlsCredentials::Create(server.tls,
                                server.insecure ? Exposure::kWarned : Exposure::kRefused);
}

// Address space in addition to the limits of the configuration: threads, parsed requests, answers.
constexpr uint64_t kAddressSpaceBeside = uint64_t{512} << 20;

// gRPC does not check whether an allocation of it failed, and the C++ library ends the process. So
// under `ulimit -v` the configuration's own limits must fit into what is left of the address space.
absl::Status CheckAddressSpace(const Config::Server& server) {
  rlimit limit = {};
  uint64_t pages = 0;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return absl::OkStatus();
  }
  std::ifstream("/proc/self/statm") >> pages;
  const uint64_t taken = pages * static_cast<uint64_t>(getpagesize());
  const uint64_t needed =
      taken + server.max_grpc_bytes + server.max_sequence_bytes + kAddressSpaceBeside;
  if (limit.rlim_cur >= needed) return absl::OkStatus();
  return MakeError(
      Reason::kOutOfMemory,
      absl::StrCat("the address space is limited to ", limit.rlim_cur, " bytes (ulimit -v), and ",
                   "the daemon can need ", needed, ": ", taken, " now, ", server.max_grpc_bytes,
                   " for server.max_grpc_bytes, ", server.max_sequence_bytes,
                   " for server.max_sequence_bytes and ", kAddressSpaceBeside,
                   " beside; raise the limit, or lower these keys"));
}

// 256 random bits.
std::string RandomToken() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 8; ++i) absl::StrAppend(&token, absl::Hex(device(), absl::kZeroPad8));
  return token;
}

}  // namespace

Daemon::Daemon(Config config, std::function<void()> request_drain, absl::Time start_time)
    : config_(std::move(config)),
      request_drain_(std::move(request_drain)),
      start_time_(start_time),
      rpc_metrics_(std::make_unique<RpcMetrics>()),
      caches_(std::make_unique<CacheDirectory>()),
      listeners_(std::make_unique<ListenerWatch>()) {}

const std::vector<std::string>& Daemon::grpc_endpoints() const { return grpc_->endpoints(); }

std::string Daemon::http_endpoint() const { return http_ ? http_->address().ToString() : ""; }

std::string Daemon::probe_endpoint() const { return probes_ ? probes_->address().ToString() : ""; }

SharedManager& Daemon::manager() { return opener_->own()->manager(); }

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(
    Config config, std::function<void()> request_drain,
    const std::vector<grpc::Service*>& extra_services, const std::function<bool()>& interrupted) {
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  auto daemon =
      absl::WrapUnique(new Daemon(std::move(config), std::move(request_drain), absl::Now()));
  if (absl::Status status = daemon->ResolveAddresses(); !status.ok()) return status;
  if (absl::Status status = daemon->SetUpCallers(); !status.ok()) return status;
  if (absl::Status status = daemon->SetUpExchange(); !status.ok()) return status;
  if (absl::Status status = daemon->ListenForProbes(); !status.ok()) return status;
  if (absl::Status status = daemon->OpenCaches(); !status.ok()) return status;
  if (absl::Status status = daemon->MakeServices(); !status.ok()) return status;
  if (absl::Status status = daemon->Listen(extra_services); !status.ok()) return status;
  daemon->opener_->Keep();
  if (absl::Status status = daemon->StartEngine(interrupted); !status.ok()) return status;
  return daemon;
}

absl::Status Daemon::ResolveAddresses() {
  if (!config_.engine.model_dir.empty()) {
    // The engine takes them later. An address that another process has is better known now.
    for (const std::string& text :
         {config_.engine.GrpcAddress(config_.server), config_.engine.HttpAddress(config_.server)}) {
      if (text.empty()) continue;
      const absl::StatusOr<TcpAddress> parsed = ParseAddress(text);
      if (!parsed.ok()) return parsed.status();
      if (absl::Status status = CheckCanListen(*parsed); !status.ok()) return status;
    }
  }
  for (const auto& [text, address] : {std::pair(&config_.server.grpc_address, &grpc_address_),
                                      std::pair(&config_.server.http_address, &http_address_),
                                      std::pair(&config_.server.probe_address, &probe_address_)}) {
    if (text->empty()) continue;
    absl::StatusOr<TcpAddress> parsed = ParseAddress(*text);
    if (!parsed.ok()) return parsed.status();
    if (absl::Status status = CheckCanListen(*parsed); !status.ok()) return status;
    *address = *std::move(parsed);
  }
  // ValidateConfig has checked that the operator asked for this.
  if (grpc_address_.has_value() && !IsLoopback(*grpc_address_) && !config_.server.tls.enabled()) {
    Log(LogLevel::kWarning, absl::StrCat("insecure: gRPC is open to other machines, without TLS: ",
                                         grpc_address_->ToString()));
  }
  if (http_address_.has_value() && !IsLoopback(*http_address_)) {
    Log(LogLevel::kWarning, absl::StrCat("insecure: HTTP is open to other machines, without TLS: ",
                                         http_address_->ToString()));
  }
  return absl::OkStatus();
}

absl::Status Daemon::SetUpCallers() {
  absl::StatusOr<TenantTable> tenants =
      TenantTable::Create(TenantsOf(config_), config_.default_tenant_share);
  if (!tenants.ok()) return tenants.status();
  tenants_ = std::make_unique<TenantTable>(*std::move(tenants));
  absl::StatusOr<std::unique_ptr<Authenticator>> authenticator = Authenticator::Create(config_);
  if (!authenticator.ok()) return authenticator.status();
  authenticator_ = *std::move(authenticator);
  if (config_.knows_callers() && config_.operators.empty()) {
    Log(LogLevel::kWarning,
        "no operators are configured: no caller may use the operators' methods");
  }
  admission_ = std::make_unique<Admission>(config_.server.max_calls, &rpc_metrics_->open_calls(),
                                           authenticator_.get(), tenants_.get(),
                                           config_.server.max_message_bytes);
  return absl::OkStatus();
}

absl::Status Daemon::SetUpExchange() {
  const Config::Peers& peers = config_.peers;
  if (!peers.address.empty()) {
    const absl::StatusOr<TcpAddress> address = ParseAddress(peers.address);
    if (!address.ok()) return address.status();
    absl::StatusOr<std::string> secret = ReadStoreSecret(config_);
    if (!secret.ok()) return secret.status();
    PeerServer::Options options = {
        .address = *address,
        .tokens_file = peers.tokens_file,
        .exposure = config_.server.insecure ? Exposure::kWarned : Exposure::kRefused,
        .secret = *std::move(secret),
        .version = PAGODA_VERSION,
        .max_connections = peers.max_connections};
    if (!peers.certificate.empty()) {
      options.tls = ServerTls{.certificate_file = peers.certificate,
                              .key_file = peers.key,
                              .client_ca_file = peers.client_ca};
    }
    absl::StatusOr<std::unique_ptr<PeerServer>> server = PeerServer::Start(std::move(options));
    if (!server.ok()) return server.status();
    peers_ = *std::move(server);
    // ValidateConfig has checked that the operator asked for this.
    if (!IsLoopback(*address) &&
        (peers.certificate.empty() || (peers.tokens_file.empty() && peers.client_ca.empty()))) {
      Log(LogLevel::kWarning,
          absl::StrCat("insecure: cached blocks can be read by other machines, ",
                       peers.certificate.empty() ? "without TLS: " : "without a token: ",
                       peers_->address().ToString()));
    }
    Log(LogLevel::kInfo,
        absl::StrCat("other daemons read blocks at ", peers_->address().ToString()));
  }
  if (!config_.exchanges() && peers_ == nullptr) return absl::OkStatus();
  Config config = config_;
  if (peers_ != nullptr) config.peers.address = peers_->address().ToString();  // With its port.
  absl::StatusOr<std::unique_ptr<Sources>> sources = Sources::Create(config);
  if (!sources.ok()) return sources.status();
  sources_ = *std::move(sources);
  return absl::OkStatus();
}

std::string Daemon::peer_endpoint() const { return peers_ ? peers_->address().ToString() : ""; }

absl::Status Daemon::OpenCaches() {
  opener_ = std::make_unique<CacheOpener>(CacheOpener::Options{
      .config = config_,
      .tenants = tenants_.get(),
      .supervisor = &supervisor_,
      .directory = caches_.get(),
      .sources = sources_.get(),
      .peers = peers_.get(),
      .start_time = start_time_,
      .end_waits = [this](const CacheParts& cache, const absl::Status& reason) {
        if (cache_service_ != nullptr) cache_service_->EndWaitsOf(cache, reason);
      }});
  return opener_->Start();
}

absl::Status Daemon::MakeServices() {
  if (absl::Status status = MakeCacheServices(); !status.ok()) return status;
  if (!config_.engine.model_dir.empty()) MakeEngine();
  MakeAdminServices();
  StartTimers();
  return CheckThreads();
}

absl::Status Daemon::MakeCacheServices() {
  cache_service_ = std::make_unique<CacheService>(
      CacheService::Options{
          .default_lease = config_.sessions.default_lease,
          .max_lease = config_.sessions.max_lease,
          .max_sessions = config_.server.max_sessions,
          .tenant_queues = {.waiting_calls = std::max(1u, config_.server.max_calls / 4),
                            .waiting_bytes = config_.server.max_grpc_bytes / 8},
          .max_message_bytes = config_.server.max_message_bytes,
          .map_socket = config_.server.MapSocketPath(),
          .opener = opener_.get(),
          .sources = sources_.get(),
          .rings = config_.server.rings ? CacheService::Rings::kOn : CacheService::Rings::kOff},
      caches_.get(), &state_, admission_.get(), rpc_metrics_.get());
  event_service_ = std::make_unique<EventService>(caches_.get(), &state_, admission_.get());
  ServedCache* const own = opener_->own();
  absl::StatusOr<std::unique_ptr<Bridges>> bridges =
      Bridges::Start(config_, own == nullptr ? nullptr : &own->manager(), &state_, admission_.get(),
                     own == nullptr ? nullptr : &own->parts().streams->metrics());
  if (!bridges.ok()) return bridges.status();
  bridges_ = *std::move(bridges);
  return absl::OkStatus();
}

void Daemon::MakeAdminServices() {
  ServedCache* const own = opener_->own();
  const DaemonParts parts = {.caches = caches_.get(),
                             .opener = opener_.get(),
                             .cache_service = cache_service_.get(),
                             .events = event_service_.get(),
                             .bridges = bridges_.get(),
                             .engine = engine_.get(),
                             .state = &state_,
                             .admission = admission_.get(),
                             .gpu_report = own == nullptr ? nullptr : own->gpu_report(),
                             .sources = sources_.get(),
                             .store_servers = config_.store.servers,
                             .peers = peers_.get(),
                             .start_time = start_time_,
                             .request_drain = request_drain_};
  admin_service_ = std::make_unique<AdminService>(parts);
  if (config_.server.reflection) {
    std::vector<std::string> names = {v1::CacheService::service_full_name(),
                                      v1::EventService::service_full_name(),
                                      v1::AdminService::service_full_name()};
    if (bridges_->service() != nullptr) {
      names.emplace_back(vllm::grpc::engine::VllmEngine::service_full_name());
    }
    reflection_ = std::make_unique<ReflectionService>(std::move(names), &state_, admission_.get());
  }
  if (http_address_.has_value()) {
    http_fence_ = std::make_unique<HttpFence>(
        HttpFence::Options{.address = *http_address_, .knows_callers = config_.knows_callers()},
        authenticator_.get());
    status_api_ = std::make_unique<StatusApi>(parts, admin_service_.get(), http_fence_.get());
  }
  metrics_ = std::make_unique<Metrics>(
      parts, rpc_metrics_.get(),
      config_.metrics.tenants ? TenantLabels::kNames : TenantLabels::kSummed);
}

void Daemon::StartTimers() {
  heartbeat_ = std::make_unique<Heartbeat>(
      HeartbeatInterval(supervisor_.watchdog_timeout()),
      [this] {
        for (const CachePtr& cache : caches_->All()) cache->manager->Read(&BlockManager::revision);
      },
      &supervisor_);
  if (config_.knows_callers()) {
    tokens_timer_ = std::make_unique<PeriodicTask>(kTokensCheckInterval, [this] {
      authenticator_->Refresh();
      cache_service_->EndRevokedStreams();
      event_service_->EndRevokedStreams();
      bridges_->EndRevokedStreams();
      if (reflection_ != nullptr) reflection_->EndRevokedStreams();
    });
  }
  lease_timer_ = std::make_unique<PeriodicTask>(kLeaseCheckInterval, [this] {
    for (const CachePtr& cache : caches_->All()) {
      // Sweep first: a session whose process is known to be dead then quarantines nothing.
      cache->writers->Sweep();
      // A check that comes later than twice the interval shows that the process stood still.
      const size_t expired = cache->manager->ExpireSessions(2 * kLeaseCheckInterval);
      if (expired > 0) {
        Log(LogLevel::kWarning,
            absl::StrCat("cache ", cache->name, ": ", Counted(expired, "session"),
                         " closed: no client renewed the lease"));
      }
    }
    cache_service_->SweepSessions();
  });
  maintenance_timer_ = std::make_unique<PeriodicTask>(kMaintenanceInterval, [this] {
    opener_->Maintain();
    admission_->answers()->CancelSome(SharedManager::Now());
  });
}

absl::Status Daemon::CheckThreads() const {
  absl::Status started = heartbeat_->started();
  for (const PeriodicTask* timer :
       {tokens_timer_.get(), lease_timer_.get(), maintenance_timer_.get()}) {
    if (timer != nullptr) started.Update(timer->started());
  }
  started.Update(cache_service_->started());
  return started;
}

absl::Status Daemon::Listen(const std::vector<grpc::Service*>& extra_services) {
  if (absl::Status status = ListenHttp(); !status.ok()) return status;
  if (absl::Status status = ListenForMapping(); !status.ok()) return status;
  absl::StatusOr<std::shared_ptr<TlsCredentials>> tls = MakeTls(config_.server);
  if (!tls.ok()) return tls.status();
  ConnectionLimit::SetLimits(
      StreamLimits::For(config_.server.max_calls, config_.server.max_calls_per_connection));
  GrpcServer::Options options{
      .unix_socket = config_.server.unix_socket,
      .tcp = grpc_address_,
      .tls = *std::move(tls),
      // A message above the limit, up to this size, is refused with its reason.
      .max_message_bytes = static_cast<int>(std::min<uint64_t>(
          2 * uint64_t{config_.server.max_message_bytes}, std::numeric_limits<int>::max())),
      .max_calls_per_connection = static_cast<int>(config_.server.max_calls_per_connection),
      .max_grpc_bytes = config_.server.max_grpc_bytes,
      .services = {cache_service_.get(), event_service_.get(), admin_service_.get()},
      .service_names = {v1::CacheService::service_full_name(),
                        v1::EventService::service_full_name(),
                        v1::AdminService::service_full_name()},
      .interceptors = rpc_metrics_->MakeInterceptorFactory(admission_->answers()),
      .allow_unguarded = config_.server.insecure};
  if (bridges_->service() != nullptr) options.services.push_back(bridges_->service());
  if (reflection_ != nullptr) {
    for (grpc::Service* version : reflection_->services()) options.services.push_back(version);
  }
  options.services.insert(options.services.end(), extra_services.begin(), extra_services.end());
  absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(std::move(options));
  if (!server.ok()) return server.status();
  grpc_ = *std::move(server);
  if (absl::Status status = WatchListeners(); !status.ok()) return status;
  if (absl::Status status = CheckAddressSpace(config_.server); !status.ok()) return status;
  state_.Enter(engine_ == nullptr ? ServingState::Phase::kServing
                                  : ServingState::Phase::kEngineLoads);
  grpc_->SetServing();
  return absl::OkStatus();
}

// Each process of the engine gets a credential of its own, which nobody else knows and which ends
// with it.
void Daemon::MakeEngine() {
  engine_ = std::make_unique<EngineChild>([this] {
    v1::EngineStart start;
    start.set_version(PAGODA_VERSION);
    start.set_config(PrintConfig(config_));
    start.set_endpoint(absl::StrCat("unix:", config_.server.unix_socket));
    start.set_cache(config_.cache.name);
    if (config_.knows_callers()) {
      start.set_token(RandomToken());
      authenticator_->KnowEngine(start.token());
    }
    return start;
  });
}

absl::Status Daemon::StartEngine(const std::function<bool()>& interrupted) {
  if (engine_ != nullptr) {
    supervisor_.Status(absl::StrCat("starting: loading the model ", config_.engine.model_dir));
    if (absl::Status status = engine_->Start(interrupted); !status.ok()) return status;
  }
  state_.Enter(ServingState::Phase::kServing);
  supervisor_.Ready(absl::StrCat("serving gRPC on ", absl::StrJoin(grpc_endpoints(), " and ")));
  return absl::OkStatus();
}

v1::CacheEngine Daemon::engine_addresses() const {
  return engine_ == nullptr ? v1::CacheEngine() : engine_->Addresses();
}

absl::Status Daemon::WatchListeners() {
  // The guard notices which connections are accepted.
  if (!CheckHeaderGuard().ok()) return absl::OkStatus();
  std::vector<std::string> addresses = {http_endpoint(), peer_endpoint()};
  addresses.insert(addresses.end(), grpc_endpoints().begin(), grpc_endpoints().end());
  for (const std::string& address : addresses) {
    if (const absl::StatusOr<TcpAddress> tcp = ParseAddress(address); tcp.ok()) {
      listeners_->Add(*tcp);
    }
  }
  if (!config_.server.unix_socket.empty()) {
    listeners_->Add(config_.server.unix_socket, SOCK_STREAM);
  }
  if (map_socket_ != nullptr) listeners_->Add(map_socket_->path(), SOCK_SEQPACKET);
  return listeners_->Start();
}

absl::Status Daemon::ListenForProbes() {
  if (!probe_address_.has_value()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<HttpServer>> probes =
      HttpServer::StartProbes(*probe_address_, ProbeRoutes([this] { return Health(); }));
  if (!probes.ok()) return probes.status();
  probes_ = *std::move(probes);
  return absl::OkStatus();
}

DaemonHealth Daemon::Health() const {
  const ServingState::Phase phase = state_.phase();
  // The other parts are not made yet.
  if (phase == ServingState::Phase::kStarting) {
    return {.phase = phase, .start = supervisor_.StartText()};
  }
  return {.phase = phase,
          .start = supervisor_.StartText(),
          .core_waiting = heartbeat_->waiting(),
          .silence = listeners_->Longest()};
}

absl::Status Daemon::ListenHttp() {
  if (!http_address_.has_value()) return absl::OkStatus();
  HttpServer::Handlers handlers;
  handlers.probes = ProbeRoutes([this] { return Health(); });
  HttpServer::Routes& routes = handlers.routes;
  routes["/"] = [](const HttpRequest&) { return StatusPage(); };
  // The metrics can name tenants.
  routes["/metrics"] = http_fence_->Fenced([this](const HttpRequest& request) {
    return Compressed(request, {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                .body = metrics_->Text()});
  });
  status_api_->AddRoutes(&routes);
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(*http_address_, std::move(handlers));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

absl::Status Daemon::ListenForMapping() {
  std::string path = config_.server.MapSocketPath();
  if (path.empty()) return absl::OkStatus();
  const auto export_of = [](const CachePtr& cache) {
    return MapSocket::ExportPtr(cache, cache->pool_export);
  };
  MapSocket::Gate gate = {
      .admit_reader = [this,
                       export_of](SessionRef session) -> absl::StatusOr<MapSocket::ExportPtr> {
        const absl::StatusOr<CachePtr> cache = cache_service_->CacheToMap(session);
        if (!cache.ok()) return cache.status();
        return export_of(*cache);
      },
      .admit_writer = [this, export_of](SessionRef session, PeerProcess process)
          -> absl::StatusOr<MapSocket::ExportPtr> {
        const absl::StatusOr<CachePtr> cache = cache_service_->CacheToMap(session);
        if (!cache.ok()) return cache.status();
        const absl::Status noted = (*cache)->writers->Note(session, std::move(process));
        if (!noted.ok()) return noted;
        return export_of(*cache);
      },
      .open_rings = [this](SessionRef session, uint32_t bytes) -> absl::StatusOr<MapSocket::Rings> {
        absl::StatusOr<RingHub::Opened> opened = cache_service_->OpenRings(session, bytes);
        if (!opened.ok()) return opened.status();
        return MapSocket::Rings{
            .bytes = opened->bytes,
            .descriptors = {std::move(opened->memory), std::move(opened->wake)}};
      }};
  absl::StatusOr<std::unique_ptr<MapSocket>> socket =
      MapSocket::Listen(std::move(path), std::move(gate));
  if (!socket.ok()) return socket.status();
  map_socket_ = *std::move(socket);
  return absl::OkStatus();
}

Daemon::~Daemon() {
  Drain();
  if (engine_ != nullptr) engine_->Stop(absl::InfinitePast());  // If the daemon never served.
  // Cuts answers that are still being written. Afterwards the HTTP threads have ended.
  http_.reset();
  maintenance_timer_.reset();
  if (peers_ != nullptr) peers_->Stop();
  if (sources_ != nullptr) sources_->Stop();  // If the daemon never served.
  if (opener_ != nullptr) opener_->Stop(std::max(drain_end_, absl::Now() + kDiskGrace));
}

void Daemon::Drain() {
  absl::MutexLock lock(&drain_mutex_);
  if (drained_ || grpc_ == nullptr) return;
  drained_ = true;
  absl::Time end = absl::Now() + config_.server.drain_timeout;
  // The engine's running generations need their sessions.
  if (engine_ != nullptr) {
    state_.Enter(ServingState::Phase::kEngineDrains);
    grpc_->SetNotServing();
    supervisor_.Stopping("draining: the engine's generations can go on");
    engine_->Stop(end + kEngineGrace);
    // A killed engine leaves it.
    unlink(config_.engine.UnixSocket(config_.server).c_str());
  }
  // The other clients have time of their own.
  end = std::max(end, absl::Now() + kOthersGrace);
  drain_end_ = end;
  state_.Enter(ServingState::Phase::kDraining);
  // Subscribers see this before their streams end. Calls that continue after it change the cache
  // without events.
  for (const CachePtr& cache : caches_->All()) cache->manager->RemovePools();
  grpc_->SetNotServing();
  supervisor_.Stopping(absl::StrCat("draining: calls can go on for ",
                                    absl::FormatDuration(config_.server.drain_timeout)));
  cache_service_->EndStreamsForDrain();
  event_service_->EndStreamsForDrain();
  bridges_->EndStreamsForDrain(end - absl::Now());
  if (reflection_ != nullptr) reflection_->EndStreamsForDrain();
  // Until then a new call is answered with DRAINING instead of a refused connection.
  const size_t cut = rpc_metrics_->WaitUntilNoneOpen(end - absl::Now());
  if (cut > 0)
    Log(LogLevel::kWarning, absl::StrCat("drain_timeout has passed; open calls were cut: ", cut));
  cache_service_->StopRings();
  // Fetches and publishes end now: the calls that wait for them could take longer than the drain.
  if (sources_ != nullptr) sources_->Stop();
  grpc_->Shutdown(kConnectionGrace);
  supervisor_.Status("drained");
}

}  // namespace pagoda::server
