#include "engine/serve/doors/engine_server.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "engine/serve/metrics/engine_metrics.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/engine.grpc.pb.h"
#include "prometheus/text_serializer.h"
#include "server/calls/metric_family.h"
#include "server/config/listen_address.h"
#include "server/config/source_patterns.h"
#include "server/config/tenant_options.h"
#include "server/http/gzip.h"
#include "server/http/health.h"
#include "server/listener/connection_limit.h"
#include "server/log/log.h"
#include "server/metrics/process_metrics.h"
#include "server/rpc/tls_credentials.h"
#include "server/store/sources.h"

namespace pagoda {
namespace {

// The longest time until a new token works, or a removed one no longer does.
constexpr absl::Duration kTokensCheckInterval = absl::Seconds(1);
// How often the engine asks whether its daemon is there.
constexpr absl::Duration kDaemonCheckInterval = absl::Seconds(1);
constexpr absl::Duration kMaintenanceInterval = absl::Milliseconds(20);
// Time for idle connections to close cleanly.
constexpr absl::Duration kConnectionGrace = absl::Milliseconds(200);

// None for an empty text.
absl::StatusOr<std::optional<server::TcpAddress>> AddressOf(const std::string& text) {
  if (text.empty()) return std::nullopt;
  absl::StatusOr<server::TcpAddress> address = server::ParseAddress(text);
  if (!address.ok()) return address.status();
  if (absl::Status status = server::CheckCanListen(*address); !status.ok()) return status;
  return *std::move(address);
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineServer>> EngineServer::Start(const server::Config& config,
                                                                  ConnectedEngine* engine,
                                                                  const ModelText* text,
                                                                  bool checks_sources) {
  auto server = absl::WrapUnique(new EngineServer(config, engine, text, checks_sources));
  if (absl::Status status = server->IdentifyCallers(); !status.ok()) return status;
  if (absl::Status status = server->MakeServices(); !status.ok()) return status;
  if (absl::Status status = server->ListenHttp(); !status.ok()) return status;
  if (absl::Status status = server->ListenGrpc(); !status.ok()) return status;
  server->state_.Enter(server::ServingState::Phase::kServing);
  server->grpc_->SetServing();
  return server;
}

absl::Status EngineServer::IdentifyCallers() {
  absl::StatusOr<TenantTable> tenants =
      TenantTable::Create(server::TenantsOf(config_), config_.default_tenant_share);
  if (!tenants.ok()) return tenants.status();
  tenants_ = std::make_unique<TenantTable>(*std::move(tenants));
  absl::StatusOr<std::unique_ptr<server::Authenticator>> authenticator =
      server::Authenticator::Create(config_);
  if (!authenticator.ok()) return authenticator.status();
  authenticator_ = *std::move(authenticator);
  admission_ = std::make_unique<server::Admission>(
      config_.server.max_calls, &rpc_metrics_.open_calls(), authenticator_.get(), tenants_.get(),
      config_.server.max_message_bytes);
  return absl::OkStatus();
}

absl::Status EngineServer::MakeServices() {
  const std::string model = server::ModelName(config_.engine.model_dir);
  absl::StatusOr<server::SourcePatterns> sources =
      server::SourcePatterns::Parse(config_.peers.sources);
  if (!sources.ok()) return sources.status();
  service_ = std::make_unique<server::EngineService>(
      engine_, text_, model, engine_->cache_name(), &state_, admission_.get(),
      [checks = checks_sources_, sources = *std::move(sources)](const std::string& address) {
        if (!checks || address.empty()) return absl::OkStatus();
        return server::AllowedSource(sources, address).status();
      });
  absl::StatusOr<std::optional<server::TcpAddress>> http = AddressOf(config_.server.http_address);
  if (!http.ok()) return http.status();
  if (http->has_value()) {
    fence_ = std::make_unique<server::HttpFence>(
        server::HttpFence::Options{.address = **http, .knows_callers = config_.knows_callers()},
        authenticator_.get());
    openai_ = std::make_unique<server::OpenAiApi>(
        server::OpenAiApi::Options{.max_generations = config_.server.max_http_generations,
                                   .max_body_bytes = config_.server.max_message_bytes},
        engine_, model, text_, &state_, fence_.get(), tenants_.get(), &service_->prompt_queues());
  }
  if (config_.server.reflection) {
    reflection_ = std::make_unique<server::ReflectionService>(
        std::vector<std::string>{v1::EngineService::service_full_name()}, &state_,
        admission_.get());
  }
  absl::Status started = service_->prompt_queues().started();
  if (config_.knows_callers()) {
    tokens_timer_ = std::make_unique<server::PeriodicTask>(kTokensCheckInterval, [this] {
      authenticator_->Refresh();
      if (reflection_ != nullptr) reflection_->EndRevokedStreams();
    });
    started.Update(tokens_timer_->started());
  }
  maintenance_timer_ = std::make_unique<server::PeriodicTask>(kMaintenanceInterval, [this] {
    admission_->answers()->CancelSome(SharedManager::Now());
    if (openai_ != nullptr) openai_->ReturnMemory(absl::Now());
  });
  started.Update(maintenance_timer_->started());
  daemon_timer_ = std::make_unique<server::PeriodicTask>(kDaemonCheckInterval, [this] {
    LogFiles();
    engine_->Probe(kDaemonCheckInterval);
  });
  started.Update(daemon_timer_->started());
  return started;
}

absl::Status EngineServer::ListenHttp() {
  if (openai_ == nullptr) return absl::OkStatus();
  server::HttpServer::Handlers handlers;
  handlers.probes = server::ProbeRoutes([this] {
    return server::DaemonHealth{.phase = state_.phase(),
                                .engine = engine_->CheckFiles(),
                                .has_cache = engine_->connected()};
  });
  handlers.routes["/metrics"] = fence_->Fenced([this](const server::HttpRequest& request) {
    return server::Compressed(request, {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                        .body = MetricsText()});
  });
  openai_->AddRoutes(&handlers.routes, &handlers.posts);
  const absl::StatusOr<server::TcpAddress> address =
      server::ParseAddress(config_.server.http_address);
  if (!address.ok()) return address.status();
  absl::StatusOr<std::unique_ptr<server::HttpServer>> http =
      server::HttpServer::Start(*address, std::move(handlers));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

absl::Status EngineServer::ListenGrpc() {
  const server::Config::Server& chosen = config_.server;
  absl::StatusOr<std::optional<server::TcpAddress>> tcp = AddressOf(chosen.grpc_address);
  if (!tcp.ok()) return tcp.status();
  std::shared_ptr<server::TlsCredentials> tls;
  if (chosen.tls.enabled() && tcp->has_value()) {
    absl::StatusOr<std::shared_ptr<server::TlsCredentials>> made = server::TlsCredentials::Create(
        chosen.tls, chosen.insecure ? server::Exposure::kWarned : server::Exposure::kRefused);
    if (!made.ok()) return made.status();
    tls = *std::move(made);
  }
  server::ConnectionLimit::SetLimits(
      server::StreamLimits::For(chosen.max_calls, chosen.max_calls_per_connection));
  std::vector<grpc::Service*> services = {service_.get()};
  if (reflection_ != nullptr) {
    for (grpc::Service* version : reflection_->services()) services.push_back(version);
  }
  absl::StatusOr<std::unique_ptr<server::GrpcServer>> grpc = server::GrpcServer::Start(
      {.unix_socket = chosen.unix_socket,
       .tcp = *std::move(tcp),
       .tls = std::move(tls),
       // A message above the limit, up to this size, is refused with its reason.
       .max_message_bytes = static_cast<int>(std::min<uint64_t>(
           2 * uint64_t{chosen.max_message_bytes}, std::numeric_limits<int>::max())),
       .max_calls_per_connection = static_cast<int>(chosen.max_calls_per_connection),
       .max_grpc_bytes = chosen.max_grpc_bytes,
       .services = std::move(services),
       .service_names = {v1::EngineService::service_full_name()},
       .interceptors = rpc_metrics_.MakeInterceptorFactory(admission_->answers()),
       .allow_unguarded = chosen.insecure});
  if (!grpc.ok()) return grpc.status();
  grpc_ = *std::move(grpc);
  return absl::OkStatus();
}

v1::CacheEngine EngineServer::addresses() const {
  v1::CacheEngine addresses;
  for (const std::string& endpoint : grpc_->endpoints()) addresses.add_grpc(endpoint);
  if (http_ != nullptr) addresses.set_http(http_->address().ToString());
  return addresses;
}

void EngineServer::LogFiles() {
  if (told_of_files_) return;
  const absl::Status files = engine_->CheckFiles();
  told_of_files_ = !files.ok();
  if (told_of_files_) server::Log(server::LogLevel::kError, std::string(files.message()));
}

v1::EngineReport EngineServer::Report(DaemonLink::Metrics metrics) const {
  const EngineStats stats = engine_->Stats();
  const ModelConfig& model = engine_->model();
  v1::EngineReport report;
  report.set_serving(true);
  v1::EngineStatus& status = *report.mutable_status();
  status.set_model(service_->model_name());
  status.set_architecture(model.architecture);
  status.set_vocab_size(model.vocab_size);
  status.set_max_sequence_tokens(model.max_position_embeddings);
  status.set_running_requests(stats.running_requests);
  status.set_waiting_requests(stats.waiting_requests);
  status.set_prompt_tokens(stats.prompt_tokens);
  status.set_reused_tokens(stats.reused_tokens);
  status.set_computed_tokens(stats.computed_tokens);
  status.set_generated_tokens(stats.generated_tokens);
  *status.mutable_addresses() = addresses();
  if (metrics == DaemonLink::Metrics::kWith) {
    report.set_metrics(prometheus::TextSerializer().Serialize(CollectEngineMetrics()));
  }
  return report;
}

std::vector<prometheus::MetricFamily> EngineServer::CollectEngineMetrics() const {
  std::vector<prometheus::MetricFamily> families = server::CollectEngine(engine_->Stats());
  if (openai_ == nullptr) return families;
  std::vector<prometheus::MetricFamily> http = server::CollectHttpGenerations(openai_->counts());
  families.insert(families.end(), std::make_move_iterator(http.begin()),
                  std::make_move_iterator(http.end()));
  return families;
}

std::string EngineServer::MetricsText() const {
  std::vector<prometheus::MetricFamily> families = CollectEngineMetrics();
  families.push_back(server::GaugeFamily(
      "pagoda_engine_connected", "Whether the engine has a session with its daemon: 1 or 0."));
  server::AddSample(families.back(), {}, engine_->connected() ? 1 : 0);
  for (std::vector<prometheus::MetricFamily> more :
       {rpc_metrics_.Collect(), server::CollectProcessMetrics()}) {
    families.insert(families.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  }
  return prometheus::TextSerializer().Serialize(families);
}

EngineServer::~EngineServer() {
  Drain();
  // If the server never served: no generation over HTTP delays its end.
  if (openai_ != nullptr) openai_->Drain(absl::InfinitePast());
  http_.reset();
  daemon_timer_.reset();
  maintenance_timer_.reset();
}

void EngineServer::Drain() {
  if (drained_ || grpc_ == nullptr) return;
  drained_ = true;
  const absl::Time end = absl::Now() + config_.server.drain_timeout;
  state_.Enter(server::ServingState::Phase::kDraining);
  grpc_->SetNotServing();
  if (reflection_ != nullptr) reflection_->EndStreamsForDrain();
  rpc_metrics_.WaitUntilNoneOpen(end - absl::Now());
  if (openai_ != nullptr) openai_->Drain(end);
  // A request that waits for another daemon would hold its call, and the call holds the server.
  engine_->Interrupt();
  grpc_->Shutdown(kConnectionGrace);
}

}  // namespace pagoda
