// The daemon: all of pagodad except its command line and its signal handling.
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
#include "pagoda/v1/caches.pb.h"
#include "server/config/config.h"
#include "server/config/listen_address.h"
#include "server/supervision/serving_state.h"
#include "server/supervision/supervisor.h"

namespace grpc {
class Service;
}

namespace pagoda {
class SharedManager;
class TenantTable;
}  // namespace pagoda

namespace pagoda::server {

// Forward declarations keep this header light: its users need none of these classes, and their
// headers take long to compile.
class AdminService;
class Admission;
class Authenticator;
class Bridges;
class CacheDirectory;
class CacheOpener;
class CacheService;
class EngineChild;
class EventService;
class GrpcServer;
class Heartbeat;
class HttpFence;
class HttpServer;
class ListenerWatch;
class MapSocket;
class Metrics;
class PeerServer;
class PeriodicTask;
class ReflectionService;
class RpcMetrics;
class Sources;
class StatusApi;
struct DaemonHealth;

// A running daemon. Thread-safe.
class Daemon {
 public:
  // Allocates the memory, listens, and starts the bundled engine, if there is one. When it returns,
  // the daemon serves: health is SERVING.
  // Start and Drain report their progress to the service manager, if there is one.
  // `extra_services` are served in addition to the daemon's own services and must outlive the
  // daemon, for example the baseline of a benchmark. The request metrics do not count them, and
  // Drain does not wait for them.
  // Errors:
  // - INVALID_ARGUMENT: an address or a cache name is in use, the layout is not supported, or the
  //   tokens or TLS files are invalid.
  // - OUT_OF_MEMORY, INVALID_CHECKPOINT.
  // - UNAVAILABLE: cache.primary_memory is cuda and no GPU memory is available.
  // - FAILED_PRECONDITION: the configuration names a GPU, and the self-test leaves the engine no
  //   kernel to run there.
  // - Those of EngineChild::Start.
  // - The errors of DiskTier::Open and of Thread::Start.
  //
  // `interrupted`: asked now and then while the engine loads its model, when clients can already
  // use the caches. If it returns true, Start does not wait for the engine.
  //
  // `request_drain` is called at most once, on a gRPC thread, when an operator asks for a drain. It
  // must return at once and let the daemon's owner call Drain. Without it, AdminService refuses the
  // request.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(
      Config config, std::function<void()> request_drain = {},
      const std::vector<grpc::Service*>& extra_services = {},
      const std::function<bool()>& interrupted = {});
  // Drains unless Drain was called.
  ~Daemon();

  // Ends the service. Health becomes NOT_SERVING, and new work is refused with DRAINING. A stream
  // ends when its client has received what it is due. First the engine drains: its running
  // generations go on until drain_timeout. Returns when all calls are over. A second call waits for
  // the first.
  void Drain() ABSL_LOCKS_EXCLUDED(drain_mutex_);

  // The listening addresses: "unix:/path", "127.0.0.1:7070".
  const std::vector<std::string>& grpc_endpoints() const;
  // "127.0.0.1:7071"; empty if HTTP is off.
  std::string http_endpoint() const;
  // The same for the probe listener.
  std::string probe_endpoint() const;
  // The same for the listener of other daemons.
  std::string peer_endpoint() const;
  // Where the bundled engine serves; empty if there is none.
  v1::CacheEngine engine_addresses() const;

  // The manager of the configuration's cache. REQUIRES: the configuration has a cache.
  SharedManager& manager();
  const CacheDirectory& caches() const { return *caches_; }

 private:
  Daemon(Config config, std::function<void()> request_drain, absl::Time start_time);

  // The steps of Start, in order. Addresses come first, because "another process listens there"
  // says more than "the memory's name is taken".
  absl::Status ResolveAddresses();
  absl::Status SetUpCallers();
  absl::Status SetUpExchange();
  // Before the memory is taken, so that probes see how far it is.
  absl::Status ListenForProbes();
  absl::Status OpenCaches();
  absl::Status MakeServices();
  // The parts of MakeServices, in order.
  absl::Status MakeCacheServices();
  void MakeAdminServices();
  void StartTimers();
  // Whether the threads run that constructors started in MakeServices.
  absl::Status CheckThreads() const;
  absl::Status Listen(const std::vector<grpc::Service*>& extra_services);
  absl::Status ListenHttp();
  absl::Status ListenForMapping();
  absl::Status WatchListeners();
  void MakeEngine();
  absl::Status StartEngine(const std::function<bool()>& interrupted);

  // For probes. Thread-safe.
  DaemonHealth Health() const;

  const Config config_;
  const std::function<void()> request_drain_;
  const absl::Time start_time_;
  std::optional<TcpAddress> grpc_address_;
  std::optional<TcpAddress> http_address_;
  std::optional<TcpAddress> probe_address_;
  ServingState state_;
  Supervisor supervisor_;

  // In dependency order: each uses those above it, and is destroyed before them.
  std::unique_ptr<RpcMetrics> rpc_metrics_;
  std::unique_ptr<TenantTable> tenants_;
  std::unique_ptr<Sources> sources_;   // Null: no blocks come from other machines.
  std::unique_ptr<PeerServer> peers_;  // Null: no other daemon reads blocks here.
  std::unique_ptr<CacheDirectory> caches_;
  std::unique_ptr<CacheOpener> opener_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<CacheService> cache_service_;
  std::unique_ptr<EventService> event_service_;
  std::unique_ptr<Bridges> bridges_;
  std::unique_ptr<EngineChild> engine_;  // Null: the configuration has no engine.
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<ReflectionService> reflection_;  // Null: switched off.
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<HttpFence> http_fence_;  // Null without HTTP, like the next one.
  std::unique_ptr<StatusApi> status_api_;
  std::unique_ptr<Heartbeat> heartbeat_;
  std::unique_ptr<PeriodicTask> tokens_timer_;
  std::unique_ptr<PeriodicTask> lease_timer_;
  std::unique_ptr<PeriodicTask> maintenance_timer_;
  const std::unique_ptr<ListenerWatch> listeners_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<HttpServer> probes_;
  std::unique_ptr<MapSocket> map_socket_;
  std::unique_ptr<GrpcServer> grpc_;

  absl::Mutex drain_mutex_;
  bool drained_ ABSL_GUARDED_BY(drain_mutex_) = false;
  absl::Time drain_end_ = absl::InfinitePast();  // When the drain has to be over. Used by the
                                                 // thread that ends the daemon.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_DAEMON_H_
