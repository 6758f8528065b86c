// The part of AdminService that lists sessions, sequences, tenants and the blocks of a prefix.
#include <optional>

#include "manager/cache_lists.h"
#include "server/admin/admin_service.h"
#include "server/admin/page.h"
#include "server/rpc/cache_service.h"
#include "wire/lists.h"
#include "wire/operations.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
absl::Status AdminService::ListSessions(const Identity& caller,
                                        const v1::ListSessionsRequest& request,
                                        v1::ListSessionsResponse* response) {
  const absl::StatusOr<CachePtr> cache = parts_.caches->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  const absl::StatusOr<PageStart> start = ParsePageToken(request.page_token());
  if (!start.ok()) return start.status();
  const size_t size = PageSize(request.page_size());
  // One row more than the page holds: the next page begins there.
  std::vector<SessionRow> rows = (*cache)->manager->Read([&](const BlockManager& core) {
    return core.lists().Sessions(SessionId(start->major), size + 1, (*cache)->manager->now());
  });
  if (rows.size() > size) {
    response->set_next_page_token(PageToken({.major = rows.back().session.value()}));
    rows.pop_back();
  }
  for (const SessionRow& row : rows) {
    v1::SessionInfo* info = response->add_sessions();
    SessionRowToProto(row, info);
    info->set_tenant(parts_.admission->tenants()[row.tenant].name);
    info->set_transport(parts_.cache_service->HasRings(row.session) ? v1::SESSION_TRANSPORT_RINGS
                                                                    : v1::SESSION_TRANSPORT_GRPC);
    for (const pid_t pid : (*cache)->writers->Pids(row.session)) {
      info->add_writer_pids(static_cast<uint32_t>(pid));
    }
  }
  return absl::OkStatus();
}

absl::Status AdminService::ListSequences(const Identity& caller,
                                         const v1::ListSequencesRequest& request,
                                         v1::ListSequencesResponse* response) {
  std::optional<SessionId> only;
  if (request.session_id() != 0) only = SessionId(request.session_id());
  const bool by_session = only.has_value() && request.cache().empty();
  const absl::StatusOr<CachePtr> cache =
      by_session ? parts_.caches->OfSession(*only) : parts_.caches->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  const absl::StatusOr<PageStart> start = ParsePageToken(request.page_token());
  if (!start.ok()) return start.status();
  const size_t size = PageSize(request.page_size());
  std::vector<SequenceRow> rows = (*cache)->manager->Read([&](const BlockManager& core) {
    return core.lists().Sequences(only, {SessionId(start->major), SequenceId(start->minor)},
                                  size + 1);
  });
  if (rows.size() > size) {
    response->set_next_page_token(
        PageToken({.major = rows.back().session.value(), .minor = rows.back().sequence.value()}));
    rows.pop_back();
  }
  for (const SequenceRow& row : rows) {
    v1::SequenceInfo* info = response->add_sequences();
    SequenceRowToProto(row, info);
    info->set_tenant(parts_.admission->tenants()[row.tenant].name);
  }
  return absl::OkStatus();
}

absl::Status AdminService::ListTenants(const Identity& caller,
                                       const v1::ListTenantsRequest& request,
                                       v1::ListTenantsResponse* response) {
  const absl::StatusOr<CachePtr> cache = parts_.caches->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  const SharedManager& manager = *(*cache)->manager;
  for (const TenantUsage& usage :
       manager.Read([](const BlockManager& core) { return core.lists().TenantUses(); })) {
    if (!caller.is_operator() && usage.tenant != caller.tenant) continue;
    TenantUsageToProto(usage, parts_.admission->tenants()[usage.tenant], manager.info(),
                       response->add_tenants());
  }
  return absl::OkStatus();
}

absl::Status AdminService::InspectPrefix(const Identity& caller,
                                         const v1::InspectPrefixRequest& request,
                                         v1::InspectPrefixResponse* response) {
  const absl::StatusOr<CachePtr> cache = parts_.caches->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  const absl::StatusOr<MatchPrefix> prompt = PromptFromProto(request);
  if (!prompt.ok()) return prompt.status();
  const absl::StatusOr<InspectedPrefix> prefix =
      (*cache)->manager->Read([&](const BlockManager& core) {
        return core.lists().InspectPrefix({.name_space = prompt->name_space,
                                           .tokens = prompt->tokens,
                                           .extra_token_ids = prompt->extra_token_ids,
                                           .multimodal_items = prompt->multimodal_items,
                                           .keys = prompt->keys});
      });
  if (!prefix.ok()) return prefix.status();
  InspectedPrefixToProto(*prefix, (*cache)->manager->info(), response);
  return absl::OkStatus();
}

}  // namespace pagoda::server
