// The daemon: everything that pagodad is, but the command line and the signals.
#ifndef PAGODA_SERVER_DAEMON_H_
#define PAGODA_SERVER_DAEMON_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "manager/shared_manager.h"
#include "server/admin/admin_service.h"
#include "server/bridges/bridges.h"
#include "server/cache/cache_directory.h"
#include "server/cache/cache_opener.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/config/config.h"
#include "server/generate/engine_service.h"
#include "server/heartbeat.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/http/probe_server.h"
#include "server/http/status_api.h"
#include "server/listen_address.h"
#include "server/memory/map_socket.h"
#include "server/metrics/metrics.h"
#include "server/metrics/rpc_metrics.h"
#include "server/openai/openai_api.h"
#include "server/periodic_task.h"
#include "server/rpc/cache_service.h"
#include "server/rpc/grpc_server.h"
#include "server/serving_state.h"
#include "server/supervisor.h"
#include "server/watch/event_service.h"

namespace pagoda::server {

// A running daemon. Thread-safe.
class Daemon {
 public:
  // Takes the memory, loads the model, listens, and is healthy when it returns. Tells the service
  // manager, where there is one, how far it is, and Drain does the same.
  // `extra_services` are served beside the daemon's own, and outlive it: a benchmark's yardstick.
  // They are not counted among the requests, and Drain does not know of them.
  // Errors: INVALID_ARGUMENT (an address or a cache name that is taken, a layout that is not
  // served, files of tokens or for TLS that are no good), OUT_OF_MEMORY, INVALID_CHECKPOINT;
  // UNAVAILABLE where cache.primary_memory is cuda and there is no GPU memory to be had;
  // FAILED_PRECONDITION where a GPU was asked for by name and the self-test leaves the engine
  // nothing to run there; those of DiskTier::Open.
  //
  // `request_drain` is called, at most once and on a thread of gRPC, when an operator asks for a
  // drain: it returns at once, and lets the daemon's owner call Drain. Without one AdminService
  // refuses that.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(
      Config config, std::function<void()> request_drain = {},
      const std::vector<grpc::Service*>& extra_services = {});
  // Drains if nobody has.
  ~Daemon();

  // Ends the service: health is NOT_SERVING, new work is refused with DRAINING, streams end when
  // their clients have what was theirs, generations that run go on until drain_timeout. Returns
  // when all calls are over. A second call waits for the first.
  void Drain() ABSL_LOCKS_EXCLUDED(drain_mutex_);

  // Where it listens: "unix:/path", "127.0.0.1:7070".
  const std::vector<std::string>& grpc_endpoints() const { return grpc_->endpoints(); }
  // "127.0.0.1:7071"; empty where there is no HTTP.
  std::string http_endpoint() const { return http_ ? http_->address().ToString() : ""; }
  // Likewise of the listener for probes.
  std::string probe_endpoint() const { return probes_ ? probes_->address().ToString() : ""; }

  // Of the configuration's cache. REQUIRES: it has one.
  SharedManager& manager() { return opener_->own()->manager(); }
  const CacheDirectory& caches() const { return caches_; }

 private:
  Daemon(Config config, std::function<void()> request_drain, absl::Time start_time)
      : config_(std::move(config)),
        request_drain_(std::move(request_drain)),
        start_time_(start_time) {}

  // The steps of Start, in order. Addresses come first, because "another process listens there"
  // says more than that its memory's name is taken.
  absl::Status ResolveAddresses();
  absl::Status KnowCallers();
  absl::Status OpenCaches();
  absl::Status MakeServices();
  absl::Status Listen(const std::vector<grpc::Service*>& extra_services);
  absl::Status ListenHttp();
  absl::Status ListenForMapping();

  const Config config_;
  const std::function<void()> request_drain_;
  const absl::Time start_time_;
  std::optional<TcpAddress> grpc_address_;
  std::optional<TcpAddress> http_address_;
  std::optional<TcpAddress> probe_address_;
  ServingState state_;
  Supervisor supervisor_;

  // Bottom to top: each uses those above it, and is destroyed before them.
  RpcMetrics rpc_metrics_;
  std::unique_ptr<TenantTable> tenants_;
  CacheDirectory caches_;
  std::unique_ptr<CacheOpener> opener_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<CacheService> cache_service_;
  std::unique_ptr<EventService> event_service_;
  std::unique_ptr<Bridges> bridges_;
  std::unique_ptr<EngineService> engine_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<HttpFence> http_fence_;  // Where there is HTTP, as the next two.
  std::unique_ptr<StatusApi> status_api_;
  std::unique_ptr<OpenAiApi> openai_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<PeriodicTask> tokens_timer_;
  std::unique_ptr<PeriodicTask> lease_timer_;
  std::unique_ptr<PeriodicTask> maintenance_timer_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<ProbeServer> probes_;
  std::unique_ptr<MapSocket> map_socket_;
  std::unique_ptr<GrpcServer> grpc_;

  absl::Mutex drain_mutex_;
  bool drained_ ABSL_GUARDED_BY(drain_mutex_) = false;
  absl::Time drain_end_ = absl::InfinitePast();  // Of the end, which is one thread.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_DAEMON_H_
