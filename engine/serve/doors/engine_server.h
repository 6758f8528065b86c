// The doors of pagoda-engine.
#ifndef PAGODA_ENGINE_SERVE_DOORS_ENGINE_SERVER_H_
#define PAGODA_ENGINE_SERVE_DOORS_ENGINE_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/serve/daemon/connected_engine.h"
#include "engine/serve/daemon/daemon_link.h"
#include "engine/serve/generate/engine_service.h"
#include "engine/serve/openai/openai_api.h"
#include "engine/text/model_text.h"
#include "manager/accounts/tenants.h"
#include "pagoda/v1/engine_process.pb.h"
#include "prometheus/metric_family.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/calls/rpc_metrics.h"
#include "server/config/config.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/reflection_service.h"
#include "server/supervision/periodic_task.h"
#include "server/supervision/serving_state.h"

namespace pagoda {

// Serves an engine to callers: OpenAI's API, the probes and the metrics over HTTP, and
// pagoda.v1.EngineService and reflection over gRPC. The doors have the daemon's rules: limits,
// deadlines, tenants and their shares. They identify a caller by the tokens and certificates of the
// configuration. The daemon identifies the caller again: the engine shows it the same token.
// Thread-safe.
class EngineServer {
 public:
  // `checks_sources`: whether the configuration is the daemon's, so that its peers.sources decide
  // what callers may name as a source. Otherwise the daemon decides alone, and a source that it
  // refuses costs a fetch.
  // `config`: its sections `server`, `tenants`, `operators` and `default_tenant_share` describe the
  // doors. The pointers outlive the server. Errors: those of
  // Authenticator::Create; INVALID_ARGUMENT (an address that is no address, or that is in use).
  static absl::StatusOr<std::unique_ptr<EngineServer>> Start(const server::Config& config,
                                                             ConnectedEngine* engine,
                                                             const ModelText* text,
                                                             bool checks_sources);
  // Drains.
  ~EngineServer();

  // Refuses new requests, and gives the running ones server.drain_timeout to end. Then interrupts
  // the engine, for good. A second call does nothing.
  void Drain();

  // Where callers reach it.
  v1::CacheEngine addresses() const;
  // For the daemon that has started it. It serves.
  v1::EngineReport Report(DaemonLink::Metrics metrics) const;

 private:
  EngineServer(const server::Config& config, ConnectedEngine* engine, const ModelText* text,
               bool checks_sources)
      : config_(config), engine_(engine), text_(text), checks_sources_(checks_sources) {}

  // The steps of Start, in order.
  absl::Status IdentifyCallers();
  absl::Status MakeServices();
  absl::Status ListenHttp();
  absl::Status ListenGrpc();

  // The metrics that the daemon shows, too.
  std::vector<prometheus::MetricFamily> CollectEngineMetrics() const;
  std::string MetricsText() const;
  // Once, if a file of the model has changed.
  void LogFiles();

  const server::Config config_;
  ConnectedEngine* const engine_;
  const ModelText* const text_;
  const bool checks_sources_;
  server::ServingState state_;
  server::RpcMetrics rpc_metrics_;
  std::unique_ptr<TenantTable> tenants_;
  std::unique_ptr<server::Authenticator> authenticator_;
  std::unique_ptr<server::Admission> admission_;
  std::unique_ptr<server::EngineService> service_;
  std::unique_ptr<server::ReflectionService> reflection_;  // Null: switched off.
  std::unique_ptr<server::HttpFence> fence_;               // Null: no HTTP.
  std::unique_ptr<server::OpenAiApi> openai_;              // Null: no HTTP.
  std::unique_ptr<server::PeriodicTask> tokens_timer_;     // If callers have tokens.
  std::unique_ptr<server::PeriodicTask> maintenance_timer_;
  std::unique_ptr<server::PeriodicTask> daemon_timer_;
  std::unique_ptr<server::HttpServer> http_;
  std::unique_ptr<server::GrpcServer> grpc_;
  bool told_of_files_ = false;  // Used by the daemon_timer_.
  bool drained_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_DOORS_ENGINE_SERVER_H_
