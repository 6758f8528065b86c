// The part of AdminService that ends sessions and their quarantines.
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/admin/admin_service.h"
#include "server/log.h"
#include "server/rpc/reactors.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

constexpr Method kEndSession = MethodNamed("/pagoda.v1.AdminService/EndSession");
constexpr Method kListQuarantines = MethodNamed("/pagoda.v1.AdminService/ListQuarantines");
constexpr Method kReleaseQuarantine = MethodNamed("/pagoda.v1.AdminService/ReleaseQuarantine");

}  // namespace

grpc::ServerUnaryReactor* AdminService::EndSession(grpc::CallbackServerContext* context,
                                                   const v1::EndSessionRequest* request,
                                                   v1::EndSessionResponse*) {
  const SessionId session(request->session_id());
  absl::Status status = CheckCall(*context, kEndSession, *request).status();
  if (!status.ok()) return Answer(context, status);
  const absl::StatusOr<CachePtr> cache = parts_.caches->OfSession(session);
  status = cache.ok() ? (*cache)->manager->EndSession(session) : cache.status();
  if (status.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("session ", request->session_id(), " ended by an operator"));
  }
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminService::ListQuarantines(grpc::CallbackServerContext* context,
                                                        const v1::ListQuarantinesRequest* request,
                                                        v1::ListQuarantinesResponse* response) {
  const absl::StatusOr<CachePtr> cache = CheckCacheCall(*context, kListQuarantines, *request);
  if (!cache.ok()) return Answer(context, cache.status());
  for (const QuarantineInfo& info : (*cache)->manager->Quarantines()) {
    v1::QuarantineInfo* out = response->add_quarantines();
    out->set_session_id(info.session.value());
    out->set_client_name(info.client_name);
    out->set_tenant(parts_.admission->tenants()[info.tenant].name);
    *out->mutable_since() = TimeToProto(info.since);
    out->set_blocks(info.blocks);
    for (const pid_t pid : (*cache)->writers->Pids(info.session)) {
      out->add_writer_pids(static_cast<uint32_t>(pid));
    }
  }
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::ReleaseQuarantine(
    grpc::CallbackServerContext* context, const v1::ReleaseQuarantineRequest* request,
    v1::ReleaseQuarantineResponse* response) {
  const absl::StatusOr<Identity> caller = CheckCall(*context, kReleaseQuarantine, *request);
  if (!caller.ok()) return Answer(context, caller.status());
  const SessionId session(request->session_id());
  // In every cache, id 0 stands for the sessions of earlier daemons.
  const absl::StatusOr<CachePtr> cache = session == WriterProcesses::kEarlierRuns
                                             ? parts_.caches->Named(request->cache(), *caller)
                                             : parts_.caches->OfSession(session);
  if (!cache.ok()) return Answer(context, cache.status());
  if (!request->force()) {
    if (absl::Status status = (*cache)->writers->CheckReleasable(session); !status.ok()) {
      return Answer(context, status);
    }
  }
  const absl::StatusOr<uint32_t> blocks = (*cache)->manager->ReleaseQuarantine(session);
  if (blocks.ok()) {
    response->set_released_blocks(*blocks);
    Log(LogLevel::kInfo,
        absl::StrCat("quarantine of session ", session.value(), " ended by an operator: ", *blocks,
                     " blocks", request->force() ? ", by force" : ""));
  }
  return Answer(context, blocks.status());
}

}  // namespace pagoda::server
