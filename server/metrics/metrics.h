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
#include "server/openai/openai_api.h"

namespace pagoda::server {

// The daemon's metrics for Prometheus. All values are read at scrape time; server/METRICS.md lists
// them. Thread-safe.
class Metrics final : public prometheus::Collectable {
 public:
  // `rpcs`, the parts and `openai` must outlive this object. `openai` is null without HTTP.
  Metrics(const DaemonParts& parts, const RpcMetrics* rpcs, const OpenAiApi* openai,
          TenantLabels tenant_labels)
      : parts_(parts), rpcs_(rpcs), openai_(openai), tenant_labels_(tenant_labels) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  // All metrics in Prometheus's text format.
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
  const OpenAiApi* const openai_;
  const TenantLabels tenant_labels_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_METRICS_H_
