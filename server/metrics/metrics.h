#ifndef PAGODA_SERVER_METRICS_METRICS_H_
#define PAGODA_SERVER_METRICS_METRICS_H_

#include <string>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/admin/admin_service.h"
#include "server/cache/disk_tier.h"
#include "server/metrics/cache_metrics.h"
#include "server/metrics/rpc_metrics.h"
#include "server/openai/openai_door.h"

namespace pagoda::server {

// The daemon's numbers for Prometheus. Everything is read at the time of the scrape; README.md has
// the list. Thread-safe.
class Metrics final : public prometheus::Collectable {
 public:
  // `rpcs` outlives this, and so do the parts, `openai`, which is null without HTTP, and `disk`,
  // which is null without a tier on disk.
  Metrics(const DaemonParts& parts, const RpcMetrics* rpcs, const OpenAiDoor* openai,
          const DiskTier* disk, TenantLabels tenant_labels)
      : parts_(parts), rpcs_(rpcs), openai_(openai), disk_(disk), tenant_labels_(tenant_labels) {}

  std::vector<prometheus::MetricFamily> Collect() const override;
  // All of it in Prometheus' text format.
  std::string Text() const;

 private:
  const DaemonParts parts_;
  const RpcMetrics* const rpcs_;
  const OpenAiDoor* const openai_;
  const DiskTier* const disk_;
  const TenantLabels tenant_labels_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_METRICS_METRICS_H_
