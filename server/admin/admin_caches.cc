// The part of AdminService that lists caches and drops clients' caches.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "server/admin/admin_service.h"
#include "server/cache/cache_opener.h"
#include "server/cache/memory_budget.h"
#include "server/engine/engine_child.h"
#include "server/log/log.h"
#include "wire/cache_info.h"
#include "wire/caches.h"
#include "wire/errors.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

void TierToRow(const CacheParts& cache, const ManagerStats& stats, size_t tier,
               v1::CacheTierRow* out) {
  const CacheInfo& info = cache.manager->info();
  out->set_name(info.TierName(Tier(tier)));
  out->set_medium(MediumToProto(info.tiers[tier].medium));
  if (tier < cache.tier_bytes.size()) out->set_bytes(cache.tier_bytes[tier].bytes);
  uint64_t capacity = 0;
  uint64_t free = 0;
  for (const WindowStats& window : stats.windows) {
    capacity += window.tiers[tier].capacity;
    free += window.tiers[tier].free;
  }
  out->set_capacity_blocks(capacity);
  out->set_used_blocks(capacity - free);
}

}  // namespace

absl::Status AdminService::ListCaches(const Identity& caller, const v1::ListCachesRequest& request,
                                      v1::ListCachesResponse* response) {
  std::vector<CachePtr> caches;
  if (request.name().empty()) {
    caches = parts_.caches->VisibleTo(caller);
  } else {
    absl::StatusOr<CachePtr> named = parts_.caches->Named(request.name(), caller);
    if (!named.ok()) return named.status();
    caches.push_back(*std::move(named));
  }
  for (const CachePtr& cache : caches) {
    v1::CacheRow* const row = response->add_caches();
    const ManagerStats stats = cache->manager->Read(&BlockManager::Stats);
    CacheInfoToProto(cache->manager->info(), row->mutable_cache());
    if (cache->identity.has_value()) IdentityToProto(*cache->identity, row->mutable_identity());
    LayersToProto(cache->layout->spec().layers, row->mutable_layers());
    row->set_epoch(cache->manager->epoch().value());
    row->set_tenant(parts_.admission->tenants()[cache->tenant].name);
    row->set_sessions(stats.sessions);
    for (size_t t = 0; t < cache->manager->info().tiers.size(); ++t) {
      TierToRow(*cache, stats, t, row->add_tiers());
    }
    *row->mutable_opened() = TimeToProto(cache->opened);
    if (const auto unused = parts_.opener->UnusedFor(cache->number)) {
      *row->mutable_unused() = DurationToProto(unused->since);
      *row->mutable_ends_in() = DurationToProto(unused->ends_in);
    }
    row->set_has_engine(parts_.HasEngine(*cache));
    if (row->has_engine()) *row->mutable_engine_addresses() = parts_.engine->Addresses();
  }
  const MemoryBudget& budget = parts_.opener->budget();
  for (const Medium medium : kAllMedia) {
    if (budget.total(medium) == 0) continue;
    v1::BudgetRow* const row = response->add_budgets();
    row->set_medium(MediumToProto(medium));
    row->set_bytes(budget.total(medium));
    row->set_free_bytes(caller.is_operator() ? budget.free(medium)
                                             : budget.FreeFor(caller.tenant, medium));
  }
  return absl::OkStatus();
}

// The thread of CacheOpener drops the cache and answers the call.
void AdminService::DropCache(grpc::ServerUnaryReactor* call, const Identity&,
                             const v1::DropCacheRequest& request, v1::DropCacheResponse* response) {
  parts_.opener->DropLater(request.name(), request.force(),
                           [=](const absl::StatusOr<uint64_t>& ended) {
                             if (ended.ok()) response->set_ended_sessions(*ended);
                             Answer(call, ended.status());
                           });
}

}  // namespace pagoda::server
