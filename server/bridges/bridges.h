// The event streams for routers of other projects. Each is off unless the configuration enables it.
#ifndef PAGODA_SERVER_BRIDGES_BRIDGES_H_
#define PAGODA_SERVER_BRIDGES_BRIDGES_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "manager/shared_manager.h"
#include "prometheus/metric_family.h"
#include "server/bridges/router_feed.h"
#include "server/bridges/smg_service.h"
#include "server/bridges/zmq_bridge.h"
#include "server/callers/admission.h"
#include "server/calls/subscriber_metrics.h"
#include "server/config/config.h"
#include "server/supervision/serving_state.h"
#include "server/watch/subscriber_row.h"

namespace pagoda::server {

// The streams of events.zmq and events.smg in the configuration. One reader of the event log feeds
// them. Thread-safe.
class Bridges {
 public:
  // `manager` is null if the daemon has no cache of its own; then both streams are off. Begins with
  // the log's first event. SMG streams count in `subscribers`. All pointers outlive the bridges.
  // Errors: INVALID_ARGUMENT if an endpoint cannot be opened.
  static absl::StatusOr<std::unique_ptr<Bridges>> Start(const Config& config,
                                                        const SharedManager* manager,
                                                        const ServingState* state,
                                                        const Admission* admission,
                                                        SubscriberMetrics* subscribers);
  // First sends the events that the log has.
  ~Bridges();

  // Serves SubscribeKvEvents; null unless events.smg is enabled.
  grpc::Service* service() const { return smg_.get(); }

  // The number of open SMG streams.
  size_t streams() const { return smg_ == nullptr ? 0 : smg_->subscribers(); }
  // For each open SMG stream, the number of events that it has not been sent yet.
  std::vector<uint64_t> StreamLags() const;
  // One row for each open SMG stream, and one for all ZMQ subscribers together.
  std::vector<SubscriberRow> Subscribers() const;

  // Ends every open SMG stream after the last event that the log has now. Waits at most `patience`
  // until the feed has read that event. Call it when the daemon drains.
  void EndStreamsForDrain(absl::Duration patience);
  // Ends the SMG streams whose callers' tokens have been revoked.
  void EndRevokedStreams();

  // The metrics whose names begin with pagoda_bridge, pagoda_zmq and pagoda_smg, for the streams
  // that are on.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  explicit Bridges(const EventLog* log) : log_(log) {}

  const EventLog* const log_;
  const absl::Time opened_ = SharedManager::Now();

  // The feed uses the two sinks, so it is declared after them and destroyed before them.
  std::unique_ptr<ZmqBridge> zmq_;
  std::unique_ptr<SmgService> smg_;
  std::unique_ptr<RouterFeed> feed_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_BRIDGES_H_
