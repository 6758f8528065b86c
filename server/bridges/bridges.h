// The streams that routers of other projects read, each off unless the configuration asks for it.
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
#include "server/config/config.h"
#include "server/metrics/subscriber_metrics.h"
#include "server/serving_state.h"
#include "server/watch/subscriber_row.h"

namespace pagoda::server {

// What the configuration's events.zmq and events.smg ask for, fed by one reader of the event log.
// Thread-safe.
class Bridges {
 public:
  // `manager` is null where the daemon has no cache of its own; then both are off.
  // Begins with the log's first event. SMG's streams count in `subscribers`. All pointers outlive
  // the bridges.
  // Errors: INVALID_ARGUMENT where an endpoint cannot be had.
  static absl::StatusOr<std::unique_ptr<Bridges>> Start(const Config& config,
                                                        const SharedManager* manager,
                                                        const ServingState* state,
                                                        const Admission* admission,
                                                        SubscriberMetrics* subscribers);
  // Sends what is in the log first.
  ~Bridges();

  // Serves SubscribeKvEvents; nullptr where it is not asked for.
  grpc::Service* service() const { return smg_.get(); }

  // How many streams of SMG's are open.
  size_t streams() const { return smg_ == nullptr ? 0 : smg_->subscribers(); }
  // Of each of those, the events that it has yet to be sent.
  std::vector<uint64_t> StreamLags() const;
  // Those, and one for all of ZMQ's subscribers.
  std::vector<SubscriberRow> Subscribers() const;

  // Ends every open stream behind what the log says now, for which the feed is waited for this long
  // at most. Call it when the state is draining.
  void EndStreamsForDrain(absl::Duration patience);
  // Ends SMG's streams whose callers' tokens have been taken back.
  void EndRevokedStreams();

  // The metrics whose names begin with pagoda_bridge, pagoda_zmq and pagoda_smg; none of what is
  // off.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  explicit Bridges(const EventLog* log) : log_(log) {}

  const EventLog* const log_;
  const absl::Time opened_ = SharedManager::Now();

  // The feed uses the sinks above it, and is destroyed before them.
  std::unique_ptr<ZmqBridge> zmq_;
  std::unique_ptr<SmgService> smg_;
  std::unique_ptr<RouterFeed> feed_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_BRIDGES_H_
