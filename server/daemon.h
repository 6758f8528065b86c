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
#include "engine/engine.h"
#include "engine/text/model_text.h"
#include "events/event_log.h"
#include "manager/shared_manager.h"
#include "pools/layout.h"
#include "pools/pool.h"
#include "pools/sizing.h"
#include "pools/transfers.h"
#include "server/admin/admin_service.h"
#include "server/bridges/bridges.h"
#include "server/cache/disk_tier.h"
#include "server/cache/kept_memory.h"
#include "server/callers/admission.h"
#include "server/callers/authenticator.h"
#include "server/config/config.h"
#include "server/generate/engine_service.h"
#include "server/heartbeat.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/http/probe_server.h"
#include "server/http/status_api.h"
#include "server/http/status_history.h"
#include "server/listen_address.h"
#include "server/memory/map_socket.h"
#include "server/memory/writer_processes.h"
#include "server/metrics/metrics.h"
#include "server/metrics/rpc_metrics.h"
#include "server/openai/openai_door.h"
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
  // UNAVAILABLE where cache.primary_memory is cuda and there is no GPU memory to be had; those of
  // DiskTier::Open.
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

  SharedManager& manager() { return *manager_; }

 private:
  Daemon(Config config, std::function<void()> request_drain, absl::Time start_time)
      : config_(std::move(config)),
        request_drain_(std::move(request_drain)),
        start_time_(start_time) {}

  // The steps of Start, in order. Addresses come first, because "another process listens there"
  // says more than that its memory's name is taken.
  absl::Status ResolveAddresses();
  absl::Status KnowCallers();
  absl::Status MakeCache();
  // The pools, and with cache.warm_restart what is found in them.
  absl::StatusOr<SizingPlan> TakeMemory();
  absl::StatusOr<SizingPlan> MakePools(const std::string& instance);
  // The files of the tier on disk, if there is one, and what is found in them.
  absl::Status OpenDisk(const SizingPlan& sizes);
  // Whether blocks of a namespace that an earlier run had are taken back.
  bool Accepts(const NamespaceKey& name_space) const;
  // Gives the core what was found in memory, or nothing where the core refuses it.
  void Restore(BlockManager& core);
  absl::Status StartTransfers();
  // On a thread of the transfers.
  void OnCopyDone(Ticket ticket, const absl::Status& status);
  absl::Status RememberWriters();
  // The last step: with cache.warm_restart what the earlier ones made stays from here on. A start
  // that fails before takes it away, and leaves what an earlier run had left.
  void KeepMemory();
  absl::Status LoadEngine();
  absl::Status MakeServices();
  void Maintain();
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
  std::optional<CacheLayout> layout_;
  std::unique_ptr<PoolSet> pools_;
  std::unique_ptr<KeptMemory> kept_;  // With cache.warm_restart.
  std::unique_ptr<EventLog> log_;
  std::unique_ptr<SharedManager> manager_;
  std::unique_ptr<DiskTier> disk_;  // Where there is one.
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<WriterProcesses> writers_;
  std::unique_ptr<ModelText> text_;  // With engine_, whose requests use it.
  std::unique_ptr<Engine> engine_;
  RpcMetrics rpc_metrics_;
  std::unique_ptr<TenantTable> tenants_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<CacheService> cache_service_;
  std::unique_ptr<EventService> event_service_;
  std::unique_ptr<Bridges> bridges_;
  std::unique_ptr<EngineService> engine_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<HttpFence> http_fence_;  // Where there is HTTP, as the next three.
  std::unique_ptr<StatusHistory> status_history_;
  std::unique_ptr<StatusApi> status_api_;
  std::unique_ptr<OpenAiDoor> openai_;
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
