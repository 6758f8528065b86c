#ifndef PAGODA_SERVER_RPC_CACHE_SERVICE_H_
#define PAGODA_SERVER_RPC_CACHE_SERVICE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pagoda/v1/cache.pb.h"
#include "server/batch/batch_run.h"
#include "server/batch/session_owners.h"
#include "server/batch/session_stream.h"
#include "server/cache/cache_opener.h"
#include "server/callers/admission.h"
#include "server/callers/stream_slots.h"
#include "server/calls/checked_service.h"
#include "server/calls/rpc_metrics.h"
#include "server/directory/cache_directory.h"
#include "server/ring/ring_hub.h"
#include "server/rpc/layer_reader.h"
#include "server/store/sources.h"
#include "server/supervision/serving_state.h"

namespace pagoda::server {

// pagoda.v1.CacheService: sessions and their batches. Thread-safe. While the daemon drains, it
// serves only KeepAlive and CloseSession. A tenant's credentials give access to its own sessions
// only.
class CacheService final : public CheckedService {
 public:
  // Whether clients on this machine can send batches through shared memory.
  enum class Rings : uint8_t { kOff, kOn };
  struct Options {
    absl::Duration default_lease;
    absl::Duration max_lease;
    uint32_t max_sessions = 4096;
    TenantQueues::Limits tenant_queues;
    size_t max_message_bytes = 16 << 20;
    std::string map_socket;         // The map socket's path; empty: there is none.
    CacheOpener* opener = nullptr;  // Null: clients cannot open caches.
    Sources* sources = nullptr;     // Null: the daemon fetches from no other machine.
    Rings rings = Rings::kOn;
  };

  // All pointers must outlive the service.
  CacheService(Options options, const CacheDirectory* caches, const ServingState* state,
               const Admission* admission, RpcMetrics* metrics);
  ~CacheService() override;

  // OK, or why a thread is missing (Thread::Start). It may not be served then.
  const absl::Status& started() const { return tenant_queues_.started(); }

  void OpenCache(grpc::ServerUnaryReactor* call, const Identity& caller,
                 const v1::OpenCacheRequest& request, v1::OpenCacheResponse* response);
  absl::Status OpenSession(const Identity& caller, const v1::OpenSessionRequest& request,
                           v1::OpenSessionResponse* response);
  void FetchPrefix(grpc::ServerUnaryReactor* call, const Identity& caller,
                   const v1::FetchPrefixRequest& request, v1::FetchPrefixResponse* response);
  void ExportPrefix(grpc::ServerUnaryReactor* call, const Identity& caller,
                    const v1::ExportPrefixRequest& request, v1::ExportPrefixResponse* response);
  absl::Status CloseSession(const Identity& caller, const v1::CloseSessionRequest& request,
                            v1::CloseSessionResponse* response);
  absl::Status KeepAlive(const Identity& caller, const v1::KeepAliveRequest& request,
                         v1::KeepAliveResponse* response);
  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request, grpc::ByteBuffer* response);
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context);

  grpc::ServerWriteReactor<v1::MaterializeResponse>* Materialize(
      grpc::CallbackServerContext* context, const Identity& caller,
      const v1::MaterializeRequest& request);

  // The cache whose pools a process can map with this session's token. Errors: UNKNOWN_SESSION,
  // STALE_SESSION, DRAINING; UNAUTHENTICATED if the credential that the session's client used last
  // was revoked. A call of that client with a valid credential makes the session usable again.
  absl::StatusOr<CachePtr> CacheToMap(SessionRef session) const;

  // Opens a pair of rings for the session; see RingHub::Open. Errors: also those of CacheToMap;
  // UNIMPLEMENTED without a reason if rings are off.
  absl::StatusOr<RingHub::Opened> OpenRings(SessionRef session, uint32_t wanted_bytes);
  // Open pairs of rings.
  size_t num_rings() const { return rings_.size(); }
  // Whether the session has an open pair.
  bool HasRings(SessionId session) const { return rings_.Has(session); }

  // Forgets the answers of sessions that no longer exist, and ends their rings.
  void SweepSessions();
  // Ends the waits of the cache's batches with `reason`.
  void EndWaitsOf(const CacheParts& cache, const absl::Status& reason);
  // Ends every open Session stream, every pair of rings and every batch's wait. Call it when the
  // state is draining.
  void EndStreamsForDrain();
  // Ends the streams and rings whose callers' tokens were revoked.
  void EndRevokedStreams();
  // Ends the rings whose batches still run. Returns when none runs any more.
  void StopRings();

 private:
  // How many ended sessions without quarantined blocks keep their recorded owner.
  static constexpr size_t kRememberedSessions = 1 << 16;

  // Whether `caller` confirms with this that no process writes for a session of an earlier daemon.
  bool AcknowledgeOld(const Identity& caller, const CacheParts& cache, SessionRef session);
  // The session's cache, if `caller` can use the session.
  absl::StatusOr<CachePtr> CheckSession(const Identity& caller, const v1::SessionRef& session);
  // The same for the calls that move prefixes, with the limits of a batch.
  absl::StatusOr<CachePtr> CheckPrefixCall(const Identity& caller, const v1::SessionRef& session);
  BatchRun::Context batch_context(TenantId tenant) {
    return {.state = state_,
            .waiting = &waiting_,
            .answers = &answers_,
            .tenant_queues = &tenant_queues_,
            .tenant = tenant,
            .max_message_bytes = options_.max_message_bytes,
            .metrics = metrics_};
  }
  // The same for Materialize. The reader is of the returned cache.
  struct Readable {
    CachePtr cache;
    LayerReader reader;
    StreamSlots::Slot slot;
  };
  absl::StatusOr<Readable> CheckMaterialize(const Identity& caller,
                                            const v1::MaterializeRequest& request);
  absl::StatusOr<absl::Duration> LeaseFromProto(uint64_t lease_ms) const;
  // Errors: UNAUTHENTICATED if the credential that the session's client used last was revoked.
  absl::Status CheckOpener(SessionId session) const;

  const Options options_;
  const CacheDirectory* const caches_;
  const ServingState* const state_;
  RpcMetrics* const metrics_;
  SessionOwners owners_;
  SessionStream::Set streams_;
  BatchRun::Set waiting_;
  AnswerMemory answers_;
  TenantQueues tenant_queues_;
  RingHub rings_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_CACHE_SERVICE_H_
