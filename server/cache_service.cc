#include "server/cache_service.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "pools/error.h"
#include "server/batch.h"
#include "server/error_map.h"
#include "server/reactors.h"
#include "server/served_fields.h"
#include "server/translate.h"

namespace pagoda::server {

grpc::ServerUnaryReactor* CacheService::OpenSession(grpc::CallbackServerContext* context,
                                                    const v1::OpenSessionRequest* request,
                                                    v1::OpenSessionResponse* response) {
  return Answer(context, DoOpenSession(*request, response));
}

absl::Status CacheService::DoOpenSession(const v1::OpenSessionRequest& request,
                                         v1::OpenSessionResponse* response) {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (absl::Status status = CheckServed(request); !status.ok()) return status;
  const absl::StatusOr<absl::Duration> lease = LeaseFromProto(request.lease_ms());
  if (!lease.ok()) return lease.status();
  const auto session = manager_->OpenSession(request.client_name(), *lease);
  if (!session.ok()) return session.status();
  SessionToProto(session->ref, response->mutable_session());
  response->set_lease_ms(absl::ToInt64Milliseconds(session->lease));
  CacheInfoToProto(manager_->info(), response->mutable_cache());
  response->set_epoch(manager_->epoch().value());
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

grpc::ServerUnaryReactor* CacheService::CloseSession(grpc::CallbackServerContext* context,
                                                     const v1::CloseSessionRequest* request,
                                                     v1::CloseSessionResponse*) {
  absl::Status status = CheckServed(*request);
  if (status.ok()) status = manager_->CloseSession(SessionFromProto(request->session()));
  return Answer(context, status);
}

grpc::ServerUnaryReactor* CacheService::KeepAlive(grpc::CallbackServerContext* context,
                                                  const v1::KeepAliveRequest* request,
                                                  v1::KeepAliveResponse* response) {
  if (absl::Status status = CheckServed(*request); !status.ok()) return Answer(context, status);
  const auto lease = manager_->KeepAlive(SessionFromProto(request->session()));
  if (lease.ok()) response->set_lease_ms(absl::ToInt64Milliseconds(*lease));
  return Answer(context, lease.status());
}

grpc::ServerUnaryReactor* CacheService::Execute(grpc::CallbackServerContext* context,
                                                const v1::ExecuteRequest* request,
                                                v1::ExecuteResponse* response) {
  return Answer(context, DoExecute(*request, response));
}

absl::Status CacheService::DoExecute(const v1::ExecuteRequest& request,
                                     v1::ExecuteResponse* response) {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (absl::Status status = CheckServed(request); !status.ok()) return status;
  return RunBatch(*manager_, SessionFromProto(request.session()), request.batch(),
                  response->mutable_result());
}

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* CacheService::Session(
    grpc::CallbackServerContext*) {
  SessionStream* stream = SessionStream::Start(manager_, &streams_);
  // Either the drain finds the new stream in the set, or the stream finds the drain here.
  if (state_->draining()) stream->EndForDrain();
  return stream;
}

void CacheService::EndStreamsForDrain() {
  for (const std::shared_ptr<SessionStream>& stream : streams_.All()) stream->EndForDrain();
}

}  // namespace pagoda::server
