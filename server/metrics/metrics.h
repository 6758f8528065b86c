#ifndef PAGODA_SERVER_METRICS_METRICS_H_
#define PAGODA_SERVER_METRICS_METRICS_H_

#include <string>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/admin/daemon_parts.h"
#include "server/calls/rpc_metrics.h"
#include "server/metrics/cache_metrics.h"

namespace pagoda::server {

// The daemon's metrics for Prometheus. All values are read at scrape time; server/METRICS.md lists
// them. Thread-safe.
class Metrics final : public prometheus::Collectable {
 public:
  // `rpcs` and the parts must outlive this object.
  Metrics(const DaemonParts& parts, const RpcMetrics* rpcs, TenantLabels tenant_labels)
      : parts_(parts), rpcs_(rpcs), tenant_labels_(tenant_labels) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  // All metrics in Prometheus's text format, and those that the engine's process has reported.
  std::string Text() const;

  // Merges the families of several caches into one list that has each family once. The first label
  // of each sample, `cache`, names the sample's cache.
  static std::vector<prometheus::MetricFamily> Merged(
      std::vector<std::pair<std::string, std::vector<prometheus::MetricFamily>>> by_cache);

 private:
  std::vector<prometheus::MetricFamily> CollectCache(const CacheParts& cache) const;
  // The store, and other daemons.
  std::vector<prometheus::MetricFamily> CollectOtherMachines() const;

  const DaemonParts parts_;
  const RpcMetrics* const rpcs_;
  const TenantLabels tenant_labels_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_METRICS_H_
