#include "server/rpc/cache_service.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/batch/execute_call.h"
#include "server/calls/reactors.h"
#include "wire/cache_info.h"
#include "wire/caches.h"
#include "wire/errors.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

constexpr Method kExecute = MethodNamed("/pagoda.v1.CacheService/Execute");
constexpr Method kSession = MethodNamed("/pagoda.v1.CacheService/Session");

// Whether the cache holds the KV of the model that a client names. Errors: MODEL_MISMATCH.
absl::Status CheckModel(const CacheInfo& cache, const std::string& named) {
  if (named.empty() || named == cache.model_fingerprint) return absl::OkStatus();
  if (cache.model_fingerprint.empty()) {
    return MakeError(Reason::kModelMismatch,
                     absl::StrCat("cache ", cache.name,
                                  " does not say which model it holds (cache.model); the session "
                                  "is for \"",
                                  named, "\""));
  }
  return MakeError(Reason::kModelMismatch,
                   absl::StrCat("cache ", cache.name, " is for the model \"",
                                cache.model_fingerprint, "\", the session for \"", named, "\""));
}

absl::Status SessionDraining() {
  return MakeError(Reason::kDraining,
                   "the daemon is shutting down; the session stays open until its lease expires");
}

}  // namespace

CacheService::CacheService(Options options, const CacheDirectory* caches, const ServingState* state,
                           const Admission* admission, RpcMetrics* metrics)
    : CheckedService(admission, &tenant_queues_),
      options_(std::move(options)),
      caches_(caches),
      state_(state),
      metrics_(metrics),
      owners_(options_.max_sessions + kRememberedSessions),
      tenant_queues_(options_.tenant_queues),
      rings_(RingHub::DefaultLimits(), caches, admission->tenants().size(), metrics) {
  Serve(MethodNamed("/pagoda.v1.CacheService/OpenCache"), &CacheService::OpenCache);
  Serve(MethodNamed("/pagoda.v1.CacheService/OpenSession"), &CacheService::OpenSession);
  Serve(MethodNamed("/pagoda.v1.CacheService/CloseSession"), &CacheService::CloseSession);
  Serve(MethodNamed("/pagoda.v1.CacheService/KeepAlive"), &CacheService::KeepAlive);
  ServeBytes(kExecute, &CacheService::Execute);
  ServeBytes(kSession, &CacheService::Session);
  Serve(MethodNamed("/pagoda.v1.CacheService/FetchPrefix"), &CacheService::FetchPrefix);
  Serve(MethodNamed("/pagoda.v1.CacheService/ExportPrefix"), &CacheService::ExportPrefix);
  Serve(MethodNamed("/pagoda.v1.CacheService/Materialize"), &CacheService::Materialize);
}
CacheService::~CacheService() = default;

// Allocating the memory takes time, so another thread opens the cache.
void CacheService::OpenCache(grpc::ServerUnaryReactor* call, const Identity& caller,
                             const v1::OpenCacheRequest& request, v1::OpenCacheResponse* response) {
  absl::Status status = state_->CheckAcceptsWork();
  if (status.ok() && options_.opener == nullptr) status = NoMemoryForCaches();
  if (!status.ok()) return Answer(call, status);
  const absl::StatusOr<TenantId> tenant = admission()->SessionTenant(caller, request.tenant());
  if (!tenant.ok()) return Answer(call, tenant.status());
  absl::StatusOr<OpenCacheCall> wanted = OpenCacheFromProto(request);
  if (!wanted.ok()) return Answer(call, wanted.status());
  options_.opener->OpenLater(*std::move(wanted), *tenant,
                             [=](const absl::StatusOr<CacheOpener::Opened>& opened) {
                               if (opened.ok()) {
                                 const SharedManager& manager = *opened->cache->manager;
                                 CacheInfoToProto(manager.info(), response->mutable_cache());
                                 response->set_created(opened->created);
                                 response->set_epoch(manager.epoch().value());
                               }
                               Answer(call, opened.status());
                             });
}

absl::Status CacheService::OpenSession(const Identity& caller,
                                       const v1::OpenSessionRequest& request,
                                       v1::OpenSessionResponse* response) {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  const absl::StatusOr<TenantId> tenant = admission()->SessionTenant(caller, request.tenant());
  if (!tenant.ok()) return tenant.status();
  const absl::StatusOr<absl::Duration> lease = LeaseFromProto(request.lease_ms());
  if (!lease.ok()) return lease.status();
  const absl::StatusOr<CachePtr> cache = caches_->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  SharedManager& manager = *(*cache)->manager;
  if (absl::Status status = CheckModel(manager.info(), request.model_fingerprint()); !status.ok()) {
    return status;
  }
  const auto session = manager.OpenSession(request.client_name(), *lease, *tenant);
  if (!session.ok()) return session.status();
  if (options_.opener != nullptr) options_.opener->NoteSession((*cache)->number);
  owners_.Add(session->ref, *tenant, caller,
              [this](absl::Span<const SessionRef> others) { return caches_->Remembers(others); });
  SessionToProto(session->ref, response->mutable_session());
  response->set_lease_ms(absl::ToInt64Milliseconds(session->lease));
  CacheInfoToProto(manager.info(), response->mutable_cache());
  response->set_epoch(manager.epoch().value());
  response->set_map_socket(options_.map_socket);
  response->set_tenant(admission()->tenants()[*tenant].name);
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> CacheService::LeaseFromProto(uint64_t lease_ms) const {
  if (lease_ms == 0) return options_.default_lease;
  const auto max_ms = static_cast<uint64_t>(absl::ToInt64Milliseconds(options_.max_lease));
  if (lease_ms > max_ms) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("lease_ms is ", lease_ms, "; at most ", max_ms, " is allowed"));
  }
  return absl::Milliseconds(lease_ms);
}

absl::StatusOr<CachePtr> CacheService::CheckSession(const Identity& caller,
                                                    const v1::SessionRef& session_proto) {
  const SessionRef session = SessionFromProto(session_proto);
  if (absl::Status status = owners_.Check(session, caller); !status.ok()) return status;
  return caches_->OfSession(session.id);
}

absl::Status CacheService::CloseSession(const Identity& caller,
                                        const v1::CloseSessionRequest& request,
                                        v1::CloseSessionResponse*) {
  const SessionRef session = SessionFromProto(request.session());
  const absl::StatusOr<CachePtr> served = CheckSession(caller, request.session());
  absl::Status status = served.status();
  if (status.ok()) status = (*served)->manager->CloseSession(session);
  if (status.ok()) return status;
  // The core does not know a session of an earlier daemon. With this call its client confirms that
  // it no longer writes to the pools.
  const absl::StatusOr<CachePtr> cache = caches_->OfSession(session.id);
  if (cache.ok() && AcknowledgeOld(caller, **cache, session)) return absl::OkStatus();
  return status;
}

bool CacheService::AcknowledgeOld(const Identity& caller, const CacheParts& cache,
                                  SessionRef session) {
  if (cache.writers == nullptr) return false;
  if (caller.is_operator()) return cache.writers->AcknowledgeOld(session, std::nullopt);
  return cache.writers->AcknowledgeOld(session, admission()->tenants()[caller.tenant].name);
}

void CacheService::SweepSessions() {
  const auto check = [this](SessionRef session) {
    const absl::StatusOr<CachePtr> cache = caches_->OfSession(session.id);
    if (!cache.ok()) return cache.status();
    return (*cache)->manager->Read(
        [&](const BlockManager& core) { return core.CheckSession(session); });
  };
  answers_.Sweep([&](SessionRef session) { return check(session).ok(); });
  rings_.EndIf(check);
  rings_.Sweep();
}

absl::Status CacheService::KeepAlive(const Identity& caller, const v1::KeepAliveRequest& request,
                                     v1::KeepAliveResponse* response) {
  const absl::StatusOr<CachePtr> cache = CheckSession(caller, request.session());
  if (!cache.ok()) return cache.status();
  const auto lease = (*cache)->manager->KeepAlive(SessionFromProto(request.session()));
  if (lease.ok()) response->set_lease_ms(absl::ToInt64Milliseconds(*lease));
  return lease.status();
}

grpc::ServerUnaryReactor* CacheService::Execute(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  RpcMetrics::Call counted = metrics_->Begin(RpcMetrics::HandlerCounted::kExecute);
  UntakenAnswers::Call untaken(admission()->answers(), context);
  const absl::StatusOr<Identity> caller = admission()->Admit(*context, kExecute, &untaken);
  if (!caller.ok()) {
    const grpc::Status refusal = ToGrpcStatus(caller.status());
    counted.Record(refusal.error_code());
    return new ObservedAnswer(std::move(untaken), refusal);
  }
  return ExecuteCall::Start(batch_context(caller->tenant), caches_, &owners_, *caller,
                            std::move(untaken), request, response, std::move(counted));
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* CacheService::Session(
    grpc::CallbackServerContext* context) {
  RpcMetrics::Call counted = metrics_->Begin(RpcMetrics::HandlerCounted::kSession);
  UntakenAnswers::Call untaken(admission()->answers(), context);
  const absl::StatusOr<Identity> caller = admission()->Admit(*context, kSession, &untaken);
  absl::StatusOr<StreamSlots::Slot> slot =
      caller.ok() ? admission()->TakeStream(*caller) : caller.status();
  if (!slot.ok()) {
    const grpc::Status refusal = ToGrpcStatus(slot.status());
    counted.Record(refusal.error_code());
    return new RefusedStream<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>(
        refusal, std::move(untaken));
  }
  SessionStream* stream =
      SessionStream::Start(batch_context(caller->tenant), caches_, &owners_, *caller,
                           std::move(counted), std::move(untaken), *std::move(slot), &streams_);
  // Either the drain finds the new stream in the set, or this check finds the drain.
  if (state_->draining()) stream->EndSoon(SessionDraining());
  return stream;
}

absl::StatusOr<CachePtr> CacheService::CacheToMap(SessionRef session) const {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  absl::StatusOr<CachePtr> cache = caches_->OfSession(session.id);
  if (!cache.ok()) return cache;
  const absl::Status open =
      (*cache)->manager->Read([&](const BlockManager& core) { return core.CheckSession(session); });
  if (!open.ok()) return open;
  if (absl::Status status = CheckOpener(session.id); !status.ok()) return status;
  return cache;
}

absl::Status CacheService::CheckOpener(SessionId session) const {
  const std::optional<Identity> opener = owners_.OpenerOf(session);
  if (!opener.has_value() || admission()->CheckStillKnown(*opener).ok()) return absl::OkStatus();
  return MakeError(
      Reason::kUnauthenticated,
      absl::StrCat("the token that session ", session.value(), " used last is no longer valid"));
}

absl::StatusOr<RingHub::Opened> CacheService::OpenRings(SessionRef session, uint32_t wanted_bytes) {
  if (options_.rings == Rings::kOff) {
    return absl::UnimplementedError("this daemon serves no rings (server.rings)");
  }
  const absl::StatusOr<CachePtr> cache = CacheToMap(session);
  if (!cache.ok()) return cache.status();
  const std::optional<TenantId> tenant = owners_.TenantOf(session.id);
  if (!tenant.has_value()) {
    return MakeError(Reason::kUnknownSession,
                     absl::StrCat("no owner of session ", session.id.value(), " is known"));
  }
  absl::StatusOr<RingHub::Opened> opened =
      rings_.Open(batch_context(*tenant), session, wanted_bytes);
  // Either the drain finds the new pair, or this check finds the drain.
  if (state_->draining()) rings_.EndIf([](SessionRef) { return SessionDraining(); });
  return opened;
}

void CacheService::StopRings() { rings_.Stop(SessionDraining()); }

void CacheService::EndWaitsOf(const CacheParts& cache, const absl::Status& reason) {
  for (const std::shared_ptr<BatchRun>& batch : waiting_.All()) {
    if (CacheNumberOf(batch->session()) == cache.number) batch->EndWaits(reason);
  }
  rings_.EndIf([&](SessionRef session) {
    return CacheNumberOf(session.id) == cache.number ? reason : absl::OkStatus();
  });
}

void CacheService::EndRevokedStreams() {
  for (const std::shared_ptr<SessionStream>& stream : streams_.All()) {
    const absl::Status known = admission()->CheckStillKnown(stream->caller());
    if (!known.ok()) stream->EndSoon(known);
  }
  rings_.EndIf([this](SessionRef session) { return CheckOpener(session.id); });
}

void CacheService::EndStreamsForDrain() {
  const absl::Status reason = SessionDraining();
  for (const std::shared_ptr<SessionStream>& stream : streams_.All()) stream->EndSoon(reason);
  rings_.EndIf([&](SessionRef) { return reason; });
  const absl::Status draining = state_->CheckAcceptsWork();
  for (const std::shared_ptr<BatchRun>& batch : waiting_.All()) batch->EndWaits(draining);
}

}  // namespace pagoda::server
