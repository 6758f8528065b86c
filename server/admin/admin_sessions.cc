// The part of AdminService that ends sessions, and what these leave behind.
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
  absl::Status status = CheckCall(*context, kEndSession, *request).status();
  if (status.ok()) status = parts_.manager->EndSession(SessionId(request->session_id()));
  if (status.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("session ", request->session_id(), " ended by an operator"));
  }
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminService::ListQuarantines(grpc::CallbackServerContext* context,
                                                        const v1::ListQuarantinesRequest* request,
                                                        v1::ListQuarantinesResponse* response) {
  if (absl::Status status = CheckCall(*context, kListQuarantines, *request).status();
      !status.ok()) {
    return Answer(context, status);
  }
  for (const QuarantineInfo& info : parts_.manager->Quarantines()) {
    v1::QuarantineInfo* out = response->add_quarantines();
    out->set_session_id(info.session.value());
    out->set_client_name(info.client_name);
    out->set_tenant(parts_.admission->tenants()[info.tenant].name);
    *out->mutable_since() = TimeToProto(info.since);
    out->set_blocks(info.blocks);
    for (const pid_t pid : parts_.writers->Pids(info.session)) {
      out->add_writer_pids(static_cast<uint32_t>(pid));
    }
  }
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::ReleaseQuarantine(
    grpc::CallbackServerContext* context, const v1::ReleaseQuarantineRequest* request,
    v1::ReleaseQuarantineResponse* response) {
  if (absl::Status status = CheckCall(*context, kReleaseQuarantine, *request).status();
      !status.ok()) {
    return Answer(context, status);
  }
  const SessionId session(request->session_id());
  if (!request->force()) {
    if (absl::Status status = parts_.writers->CheckReleasable(session); !status.ok()) {
      return Answer(context, status);
    }
  }
  const absl::StatusOr<uint32_t> blocks = parts_.manager->ReleaseQuarantine(session);
  if (blocks.ok()) {
    response->set_released_blocks(*blocks);
    Log(LogLevel::kInfo,
        absl::StrCat("quarantine of session ", session.value(), " ended by an operator: ", *blocks,
                     " blocks", request->force() ? ", by force" : ""));
  }
  return Answer(context, blocks.status());
}

}  // namespace pagoda::server
