#include "server/metrics/store_metrics.h"

#include <utility>

#include "server/calls/metric_family.h"
#include "server/metrics/declared_families.h"

namespace pagoda::server {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

}  // namespace

Families CollectExchangeMetrics(const ExchangeStats& stats) {
  return CollectDeclared(kExchangeMetrics, stats);
}

Families CollectPublisherMetrics(const PublisherStats& stats) {
  return CollectDeclared(kPublisherMetrics, stats);
}

Families CollectStoreMetrics(const StoreStats& stats) {
  return CollectDeclared(kStoreMetrics, stats);
}

Families CollectSourceMetrics(const std::vector<Sources::PeerRow>& rows) {
  if (rows.empty()) return {};
  DeclaredFamilies declared(kSourceMetrics);
  auto speed =
      GaugeFamily("pagoda_source_bytes_per_second", "Its measured speed; 0: no fetch has ended.");
  for (const Sources::PeerRow& row : rows) {
    const MetricLabels labels = {{"address", row.address}};
    declared.Add(labels, row.stats);
    AddSample(speed, labels, row.bytes_per_second);
  }
  Families families;
  declared.MoveTo(families);
  families.push_back(std::move(speed));
  return families;
}

Families CollectPeerMetrics(const PeerStats& stats) { return CollectDeclared(kPeerMetrics, stats); }

Families CollectPeerIndexMetrics(const std::vector<PeerServer::CacheStats>& rows) {
  if (rows.empty()) return {};
  DeclaredFamilies declared(kPeerIndexMetrics);
  for (const PeerServer::CacheStats& row : rows) declared.Add({{"cache", row.name}}, row.index);
  Families families;
  declared.MoveTo(families);
  return families;
}

}  // namespace pagoda::server
