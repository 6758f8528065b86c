#include "server/admin/admin_service.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/error.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "server/admin/copy_status.h"
#include "server/admin/declared_status.h"
#include "server/admin/exchange_status.h"
#include "server/cache/disk_tier.h"
#include "server/engine/engine_child.h"
#include "server/log/log.h"
#include "wire/cache_info.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
namespace {

void TierToStatus(Tier tier, const WindowStats& stats, uint64_t block_bytes,
                  const MemoryPlace& place, v1::TierStatus* out) {
  const PriorityCounts& priorities = stats.cached_by_priority[tier.value()];
  out->set_memory_kind(MemoryKindToProto(place.kind));
  out->set_device(static_cast<uint32_t>(place.device));
  out->set_tier(TierToProto(tier));
  SetDeclared(kTierMetrics, stats.tiers[tier.value()], out);
  out->set_block_bytes(block_bytes);
  for (uint32_t priority = 0; priority < priorities.size(); ++priority) {
    if (priorities[priority] == 0) continue;
    v1::PriorityBlocks* const blocks = out->add_cached_by_priority();
    blocks->set_priority(priority);
    blocks->set_blocks(priorities[priority]);
  }
}

void WindowToStatus(uint32_t index, const WindowStats& stats, uint64_t block_bytes,
                    const PoolSet& pools, const CacheInfo& cache, v1::WindowStatus* out) {
  out->set_window_size(WindowToProto(stats.window));
  for (size_t tier = 0; tier < stats.tiers.size(); ++tier) {
    if (stats.tiers[tier].capacity == 0) continue;
    TierToStatus(Tier(tier), stats, block_bytes, pools.place(Tier(tier)), out->add_tiers());
    v1::TierStatus* const told = out->mutable_tiers(out->tiers_size() - 1);
    told->set_name(cache.TierName(Tier(tier)));
    if (cache.tiers[tier].medium == Medium::kDisk) {
      told->clear_memory_kind();  // A disk is not memory.
    } else if (pools.place(Tier(tier)).kind == MemoryKind::kHost) {
      told->set_memory_pages(MemoryPagesToProto(pools.pages(index, Tier(tier))));
    }
    uint64_t hit_tokens = 0;
    for (const TenantCounters& tenant : stats.tenants) {
      hit_tokens += tenant.prefix_hit_tokens[tier];
    }
    told->set_prefix_hit_tokens_total(hit_tokens);
  }
  SetDeclared(kWindowCounters, stats.counters, out);
  SetDeclared(kWindowMetrics, stats, out);
}

// The attention layers of a window.
uint32_t LayersOf(const WindowLayout& window) {
  size_t layers = 0;
  for (const PoolLayout& pool : window.pools) {
    if (pool.content != PoolContent::kScales) layers += pool.layers.size();
  }
  return static_cast<uint32_t>(layers);
}

v1::DaemonState StateOf(ServingState::Phase phase) {
  switch (phase) {
    case ServingState::Phase::kStarting:
    case ServingState::Phase::kEngineLoads:
      return v1::DAEMON_STATE_STARTING;
    case ServingState::Phase::kServing:
      return v1::DAEMON_STATE_SERVING;
    case ServingState::Phase::kEngineDrains:
    case ServingState::Phase::kDraining:
      return v1::DAEMON_STATE_DRAINING;
  }
  return v1::DAEMON_STATE_UNSPECIFIED;
}

void CacheToStatus(const CacheParts& cache, v1::GetStatusResponse* out) {
  const SharedManager& manager = *cache.manager;
  const ManagerStats stats = manager.Read(&BlockManager::Stats);
  out->set_epoch(manager.epoch().value());
  CacheInfoToProto(manager.info(), out->mutable_cache());
  for (uint32_t i = 0; i < stats.windows.size(); ++i) {
    // The statistics and the layout have the same windows in the same order.
    WindowToStatus(i, stats.windows[i], cache.layout->windows()[i].block_bytes(), *cache.pools,
                   manager.info(), out->add_windows());
    out->mutable_windows(static_cast<int>(i))->set_layers(LayersOf(cache.layout->windows()[i]));
  }
  SetDeclared(kCacheMetrics, stats, out);
  out->set_revision(manager.log().last().value());
  out->set_oldest_revision(manager.log().oldest().value());
  std::optional<DiskNumbers> disk;
  if (cache.disk != nullptr) {
    disk = cache.disk->numbers();
    DiskToStatus(stats, *disk, manager.info(), out->mutable_disk());
  }
  TransfersToStatus(cache.transfers->stats(), disk.has_value() ? &*disk : nullptr, manager.info(),
                    out->mutable_transfers());
}

}  // namespace

AdminService::AdminService(const DaemonParts& parts)
    : CheckedService(parts.admission), parts_(parts) {
  Serve(MethodNamed("/pagoda.v1.AdminService/GetStatus"), &AdminService::GetStatus);
  Serve(MethodNamed("/pagoda.v1.AdminService/ResetPrefixCache"), &AdminService::ResetPrefixCache);
  Serve(MethodNamed("/pagoda.v1.AdminService/Drain"), &AdminService::Drain);
  Serve(MethodNamed("/pagoda.v1.AdminService/GetHitRateCurve"), &AdminService::GetHitRateCurve);
  Serve(MethodNamed("/pagoda.v1.AdminService/ListCaches"), &AdminService::ListCaches);
  Serve(MethodNamed("/pagoda.v1.AdminService/DropCache"), &AdminService::DropCache);
  Serve(MethodNamed("/pagoda.v1.AdminService/ListSessions"), &AdminService::ListSessions);
  Serve(MethodNamed("/pagoda.v1.AdminService/ListSequences"), &AdminService::ListSequences);
  Serve(MethodNamed("/pagoda.v1.AdminService/ListTenants"), &AdminService::ListTenants);
  Serve(MethodNamed("/pagoda.v1.AdminService/InspectPrefix"), &AdminService::InspectPrefix);
  Serve(MethodNamed("/pagoda.v1.AdminService/EndSession"), &AdminService::EndSession);
  Serve(MethodNamed("/pagoda.v1.AdminService/ListQuarantines"), &AdminService::ListQuarantines);
  Serve(MethodNamed("/pagoda.v1.AdminService/ReleaseQuarantine"), &AdminService::ReleaseQuarantine);
}
AdminService::~AdminService() = default;

absl::Status AdminService::GetStatus(const Identity& caller, const v1::GetStatusRequest& request,
                                     v1::GetStatusResponse* response) {
  const absl::Time now = SharedManager::Now();
  response->set_version(PAGODA_VERSION);
  *response->mutable_time() = TimeToProto(now);
  *response->mutable_start_time() = TimeToProto(parts_.start_time);
  *response->mutable_uptime() = DurationToProto(now - parts_.start_time);
  response->set_state(StateOf(parts_.state->phase()));
  response->set_draining(parts_.state->ending());
  if (caller.is_operator()) response->set_access(v1::STATUS_ACCESS_OPERATOR);
  const absl::StatusOr<CachePtr> cache = parts_.caches->Named(request.cache(), caller);
  // A daemon that waits for clients to open caches has a status, too.
  const bool waits = request.cache().empty() && ReasonOf(cache.status()) == Reason::kUnknownCache;
  if (cache.ok() || (waits && caller.is_operator())) OtherMachinesToStatus(parts_, response);
  if (cache.ok()) {
    CacheToStatus(**cache, response);
    ExchangeToStatus(parts_, **cache, response);
    response->set_subscribers(parts_.Subscribers(**cache));
    if (parts_.HasEngine(**cache)) *response->mutable_engine() = parts_.engine->Status();
    if (IsConfigured(**cache) && parts_.gpu_report != nullptr) {
      *response->mutable_gpu_self_test() = *parts_.gpu_report;
    }
  }
  return waits ? absl::OkStatus() : cache.status();
}

absl::Status AdminService::ResetPrefixCache(const Identity& caller,
                                            const v1::ResetPrefixCacheRequest& request,
                                            v1::ResetPrefixCacheResponse* response) {
  const absl::StatusOr<CachePtr> cache = parts_.caches->Named(request.cache(), caller);
  if (!cache.ok()) return cache.status();
  response->set_removed_blocks((*cache)->manager->ResetPrefixCache());
  Log(LogLevel::kInfo, absl::StrCat("prefix cache reset: ", (*cache)->name, ": ",
                                    Counted(response->removed_blocks(), "block"), " removed"));
  return absl::OkStatus();
}

// Only the first request is passed on: the process takes a second one as the order to end at once.
absl::Status AdminService::Drain(const Identity&, const v1::DrainRequest&, v1::DrainResponse*) {
  if (parts_.request_drain == nullptr) {
    return absl::UnimplementedError("this process cannot be asked to drain");
  }
  if (!parts_.state->ending() && !drain_requested_.exchange(true)) {
    Log(LogLevel::kInfo, "an operator asked for a drain");
    parts_.request_drain();
  }
  return absl::OkStatus();
}

}  // namespace pagoda::server
