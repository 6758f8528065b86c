// The part of AdminService that ends sessions and their quarantines.
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "manager/sequences/session_endings.h"
#include "server/admin/admin_service.h"
#include "server/log/log.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
absl::Status AdminService::EndSession(const Identity&, const v1::EndSessionRequest& request,
                                      v1::EndSessionResponse*) {
  const SessionId session(request.session_id());
  const absl::StatusOr<CachePtr> cache = parts_.caches->OfSession(session);
  const absl::Status status = cache.ok() ? (*cache)->manager->EndSession(session) : cache.status();
  if (status.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("session ", request.session_id(), " ended by an operator"));
  }
  return status;
}

absl::Status AdminService::ListQuarantines(const Identity& caller,
                                           const v1::ListQuarantinesRequest& request,
                                           v1::ListQuarantinesResponse* response) {
  const absl::StatusOr<CachePtr> cache = parts_.caches->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  for (const QuarantineInfo& info : (*cache)->manager->Read(
           [](const BlockManager& core) { return core.endings().Quarantines(); })) {
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
  return absl::OkStatus();
}

absl::Status AdminService::ReleaseQuarantine(const Identity& caller,
                                             const v1::ReleaseQuarantineRequest& request,
                                             v1::ReleaseQuarantineResponse* response) {
  const SessionId session(request.session_id());
  // In every cache, id 0 stands for the sessions of earlier daemons.
  const absl::StatusOr<CachePtr> cache = session == WriterProcesses::kEarlierRuns
                                             ? parts_.caches->Named(request.cache(), caller)
                                             : parts_.caches->OfSession(session);
  if (!cache.ok()) return cache.status();
  if (!request.force()) {
    if (absl::Status status = (*cache)->writers->CheckReleasable(session); !status.ok()) {
      return status;
    }
  }
  const absl::StatusOr<uint32_t> blocks = (*cache)->manager->ReleaseQuarantine(session);
  if (blocks.ok()) {
    response->set_released_blocks(*blocks);
    Log(LogLevel::kInfo, absl::StrCat("quarantine of session ", session.value(),
                                      " ended by an operator: ", Counted(*blocks, "block"),
                                      request.force() ? ", by force" : ""));
  }
  return blocks.status();
}

}  // namespace pagoda::server
