// The statistics of the store, of other daemons, and of what caches exchange with them, as
// Prometheus families. server/METRICS.md lists them.
#ifndef PAGODA_SERVER_METRICS_STORE_METRICS_H_
#define PAGODA_SERVER_METRICS_STORE_METRICS_H_

#include <vector>

#include "manager/exchange/block_exchange.h"
#include "pools/store/store.h"
#include "prometheus/metric_family.h"
#include "server/peers/peer_server.h"
#include "server/store/publisher.h"
#include "server/store/sources.h"

namespace pagoda::server {

// The metrics of one cache, without the label that names it.
std::vector<prometheus::MetricFamily> CollectExchangeMetrics(const ExchangeStats& stats);
std::vector<prometheus::MetricFamily> CollectPublisherMetrics(const PublisherStats& stats);

// The daemon's store.
std::vector<prometheus::MetricFamily> CollectStoreMetrics(const StoreStats& stats);

// The daemons that this one fetches from; `address` names them. No rows: no families.
std::vector<prometheus::MetricFamily> CollectSourceMetrics(
    const std::vector<Sources::PeerRow>& rows);

// This daemon as others read from it, and its indexes; `cache` names them. No rows: no families.
std::vector<prometheus::MetricFamily> CollectPeerMetrics(const PeerStats& stats);
std::vector<prometheus::MetricFamily> CollectPeerIndexMetrics(
    const std::vector<PeerServer::CacheStats>& rows);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_STORE_METRICS_H_
