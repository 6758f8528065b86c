#ifndef PAGODA_SERVER_METRICS_METRICS_H_
#define PAGODA_SERVER_METRICS_METRICS_H_

#include <string>
#include <utility>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/admin/admin_service.h"
#include "server/metrics/cache_metrics.h"
#include "server/metrics/rpc_metrics.h"
#include "server/openai/openai_api.h"

namespace pagoda::server {

// The daemon's numbers for Prometheus. Everything is read at the time of the scrape; README.md has
// the list. Thread-safe.
class Metrics final : public prometheus::Collectable {
 public:
  // `rpcs` outlives this, and so do the parts and `openai`, which is null without HTTP.
  Metrics(const DaemonParts& parts, const RpcMetrics* rpcs, const OpenAiApi* openai,
          TenantLabels tenant_labels)
      : parts_(parts), rpcs_(rpcs), openai_(openai), tenant_labels_(tenant_labels) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  // All of it in Prometheus' text format.
  std::string Text() const;

  // The families of several caches as one list: each sample says by its first label, `cache`, whose
  // it is, and each family stands there once.
  static std::vector<prometheus::MetricFamily> Merged(
      std::vector<std::pair<std::string, std::vector<prometheus::MetricFamily>>> by_cache);

 private:
  std::vector<prometheus::MetricFamily> CollectCache(const CacheParts& cache) const;

  const DaemonParts parts_;
  const RpcMetrics* const rpcs_;
  const OpenAiApi* const openai_;
  const TenantLabels tenant_labels_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_METRICS_H_
