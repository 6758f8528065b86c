#include "server/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "manager/accounts/tenants.h"
#include "manager/cache_lists.h"
#include "prometheus/text_serializer.h"
#include "server/bridges/bridges.h"
#include "server/cache/cache_opener.h"
#include "server/cache/disk_tier.h"
#include "server/cache/memory_budget.h"
#include "server/calls/metric_family.h"
#include "server/directory/cache_directory.h"
#include "server/engine/engine_child.h"
#include "server/listener/accept_guard.h"
#include "server/listener/header_guard.h"
#include "server/metrics/cache_metrics.h"
#include "server/metrics/disk_metrics.h"
#include "server/metrics/gpu_metrics.h"
#include "server/metrics/pool_metrics.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/store_metrics.h"
#include "server/peers/peer_server.h"
#include "server/store/cache_exchange.h"
#include "server/store/sources.h"
#include "server/watch/cache_streams.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

void Append(Families families, Families& out) {
  out.insert(out.end(), std::make_move_iterator(families.begin()),
             std::make_move_iterator(families.end()));
}

Families CollectTransfers(const TransferStats& stats, const CacheInfo& cache) {
  auto copies = CounterFamily("pagoda_copies_total", "Block copies that succeeded.");
  auto bytes =
      CounterFamily("pagoda_copied_bytes_total", "Bytes of the block copies that succeeded.");
  auto busy = CounterFamily("pagoda_copy_seconds_total", "Time that threads spent copying.");
  auto latency = HistogramFamily(
      "pagoda_copy_latency_seconds",
      "Time from the order of a copy to its last byte, with its wait in the queue.");
  for (size_t source = 0; source < cache.tiers.size(); ++source) {
    for (size_t target = 0; target < cache.tiers.size(); ++target) {
      // Transfers to and from a disk have their own families.
      if (cache.tiers[source].medium == Medium::kDisk) continue;
      if (cache.tiers[target].medium == Medium::kDisk) continue;
      const TransferStats::Direction& direction = stats.directions[source][target];
      const MetricLabels labels = {{"source", cache.tiers[source].name},
                                   {"target", cache.tiers[target].name}};
      AddSample(copies, labels, AsDouble(direction.copies));
      AddSample(bytes, labels, AsDouble(direction.bytes));
      AddSample(busy, labels, absl::ToDoubleSeconds(direction.busy));
      AddHistogram(latency, labels, direction.latency);
    }
  }
  return {
      std::move(copies),
      std::move(bytes),
      std::move(busy),
      std::move(latency),
      Counter("pagoda_failed_copies_total", "Block copies that failed.", AsDouble(stats.failed)),
      Gauge("pagoda_running_copies", "Copies that are running.", AsDouble(stats.running)),
      Gauge("pagoda_queued_copies", "Copies that wait in the queue.", AsDouble(stats.queued)),
  };
}

Families CollectEvents(const EventLog& log) {
  // In the order of Event::what.
  constexpr std::array kTypes = {"created", "stored", "updated", "removed"};
  const auto counts = log.type_counts();
  static_assert(std::tuple_size_v<decltype(log.type_counts())> == kTypes.size());
  auto events = CounterFamily("pagoda_events_total", "Events of the cache by type.");
  for (size_t i = 0; i < kTypes.size(); ++i) {
    AddSample(events, {{"type", kTypes[i]}}, AsDouble(counts[i]));
  }
  // Read the oldest first: an event between the two reads then only makes the log look longer.
  const Revision oldest = log.oldest();
  const Revision last = log.last();
  return {
      std::move(events),
      Gauge("pagoda_event_revision", "Revision of the last event.", AsDouble(last.value())),
      Gauge("pagoda_event_oldest_revision", "Oldest revision that a subscriber can start from.",
            AsDouble(oldest.value())),
      Gauge("pagoda_event_log_events", "Events that the log holds.",
            AsDouble(last.value() + 1 - oldest.value())),
      Gauge("pagoda_event_log_bytes", "Bytes of memory that the log's events use.",
            AsDouble(log.bytes())),
      Gauge("pagoda_event_log_max_events", "The most events that the log holds.",
            AsDouble(log.limits().max_events)),
      Gauge("pagoda_event_log_max_bytes", "The most bytes that the log holds.",
            AsDouble(log.limits().max_bytes)),
  };
}

Families CollectHeaderGuard() {
  // Never changes: the dynamic linker has bound the functions.
  static const bool guarded = CheckHeaderGuard().ok();
  return {
      Gauge("pagoda_grpc_headers_guarded",
            "1 if gRPC's headers are bounded before it parses them; 0 if another library's "
            "functions replaced the daemon's.",
            guarded ? 1 : 0),
      Counter("pagoda_grpc_refused_headers_total",
              "Connections that were closed because of their headers, or of too many open calls.",
              AsDouble(HeaderGuardRefusals()))};
}

Families CollectRefusedConnections() {
  const RefusedConnections refused = CountRefusedConnections();
  auto connections = CounterFamily(
      "pagoda_refused_connections_total",
      "Connections that were closed when they were accepted, by reason: open_files (three quarters "
      "of the process's limit of open files are taken) or per_address (one address has a quarter "
      "of the limit).");
  AddSample(connections, {{"reason", "open_files"}}, AsDouble(refused.open_files));
  AddSample(connections, {{"reason", "per_address"}}, AsDouble(refused.per_address));
  return {std::move(connections)};
}

Families CollectDaemon(absl::Time start_time) {
  auto build = GaugeFamily("pagoda_build_info", "Always 1; the labels describe the build.");
  AddSample(build, {{"version", PAGODA_VERSION}}, 1);
  return {
      std::move(build),
      Gauge("pagoda_start_time_seconds", "When the daemon started, in seconds since 1970.",
            absl::ToDoubleSeconds(start_time - absl::UnixEpoch())),
  };
}

// Returns nothing if clients cannot open caches.
Families CollectBudget(const MemoryBudget& budget) {
  auto total = GaugeFamily("pagoda_cache_memory_bytes",
                           "Bytes that the configuration reserves for caches that clients open.");
  auto free = GaugeFamily("pagoda_cache_memory_free_bytes", "Bytes of it that no cache has taken.");
  for (const Medium medium : kAllMedia) {
    if (budget.total(medium) == 0) continue;
    const MetricLabels labels = {{"medium", std::string(MediumName(medium))}};
    AddSample(total, labels, AsDouble(budget.total(medium)));
    AddSample(free, labels, AsDouble(budget.free(medium)));
  }
  if (total.metric.empty()) return {};
  return {std::move(total), std::move(free)};
}

}  // namespace

Families Metrics::Merged(std::vector<std::pair<std::string, Families>> by_cache) {
  Families merged;
  absl::flat_hash_map<std::string, size_t> places;  // By the family's name.
  for (auto& [cache, families] : by_cache) {
    for (prometheus::MetricFamily& family : families) {
      for (prometheus::ClientMetric& metric : family.metric) {
        const bool has_label = std::any_of(metric.label.begin(), metric.label.end(),
                                           [](const auto& label) { return label.name == "cache"; });
        if (!has_label) metric.label.insert(metric.label.begin(), {"cache", cache});
      }
      const auto [place, is_new] = places.emplace(family.name, merged.size());
      if (is_new) {
        merged.push_back(std::move(family));
        continue;
      }
      std::vector<prometheus::ClientMetric>& all = merged[place->second].metric;
      all.insert(all.end(), std::make_move_iterator(family.metric.begin()),
                 std::make_move_iterator(family.metric.end()));
    }
  }
  return merged;
}

Families Metrics::CollectCache(const CacheParts& cache) const {
  const auto [stats, uses] = cache.manager->Read(
      [](const BlockManager& core) { return std::pair(core.Stats(), core.lists().TenantUses()); });
  Families families;
  Append(CollectCacheMetrics({.stats = stats,
                              .uses = uses,
                              .info = cache.manager->info(),
                              .layout = *cache.layout,
                              .tenants = cache.manager->tenants()},
                             tenant_labels_),
         families);
  Append(CollectPoolMetrics(*cache.pools, cache.manager->info()), families);
  Append(CollectTransfers(cache.transfers->stats(), cache.manager->info()), families);
  if (cache.disk != nullptr) Append(CollectDiskMetrics(stats, cache.disk->numbers()), families);
  if (cache.exchange->has_session()) {
    Append(CollectExchangeMetrics(cache.exchange->stats()), families);
    if (cache.exchange->has_store()) {
      Append(CollectPublisherMetrics(cache.exchange->publisher_stats()), families);
    }
  }
  Append(CollectEvents(cache.manager->log()), families);
  std::vector<uint64_t> lags;
  if (IsConfigured(cache)) lags = parts_.bridges->StreamLags();
  for (const std::shared_ptr<WatchStream>& stream : cache.streams->all().All()) {
    lags.push_back(stream->Lag());
  }
  Append(cache.streams->metrics().Collect(lags), families);
  return families;
}

Families Metrics::CollectOtherMachines() const {
  Families families;
  if (parts_.sources != nullptr) {
    const Store* const store = parts_.sources->store();
    if (store != nullptr) Append(CollectStoreMetrics(store->stats()), families);
    Append(CollectSourceMetrics(parts_.sources->Peers()), families);
  }
  if (parts_.peers != nullptr) {
    Append(CollectPeerMetrics(parts_.peers->stats()), families);
    std::vector<PeerServer::CacheStats> indexes = parts_.peers->cache_stats();
    for (PeerServer::CacheStats& index : indexes) {
      // Names the cache as the other families do.
      for (const CachePtr& cache : parts_.caches->All()) {
        if (PeerNameOf(cache->number, cache->name) == index.name) index.name = cache->name;
      }
    }
    Append(CollectPeerIndexMetrics(indexes), families);
  }
  return families;
}

Families Metrics::Collect() const {
  Families families;
  Append(CollectDaemon(parts_.start_time), families);
  std::vector<std::pair<std::string, Families>> by_cache;
  for (const CachePtr& cache : parts_.caches->All()) {
    by_cache.emplace_back(cache->name, CollectCache(*cache));
  }
  Append(Merged(std::move(by_cache)), families);
  Append(CollectBudget(parts_.opener->budget()), families);
  Append(CollectOtherMachines(), families);
  Append(parts_.bridges->Collect(), families);
  if (parts_.engine != nullptr) Append(parts_.engine->Collect(), families);
  if (parts_.gpu_report != nullptr) Append(CollectGpuReport(*parts_.gpu_report), families);
  Append(rpcs_->Collect(), families);
  Append(CollectHeaderGuard(), families);
  Append(CollectRefusedConnections(), families);
  Append(CollectProcessMetrics(), families);
  return families;
}

std::string Metrics::Text() const {
  std::string text = prometheus::TextSerializer().Serialize(Collect());
  if (parts_.engine != nullptr) text += parts_.engine->MetricsText();
  return text;
}

}  // namespace pagoda::server
