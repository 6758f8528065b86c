#ifndef PAGODA_SERVER_WATCH_EVENT_SERVICE_H_
#define PAGODA_SERVER_WATCH_EVENT_SERVICE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "manager/shared_manager.h"
#include "manager/tenants.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "prometheus/metric_family.h"
#include "server/callers/admission.h"
#include "server/metrics/subscriber_metrics.h"
#include "server/serving_state.h"
#include "server/watch/event_pump.h"
#include "server/watch/subscriber_row.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {

// What the caller may see: an operator all, a tenant its own, and where it shares the commons' too.
EventFilter VisibleTo(const Identity& caller, const TenantTable& tenants);

// pagoda.v1.EventService. Thread-safe.
class EventService final
    : public v1::EventService::WithRawCallbackMethod_Watch<v1::EventService::Service> {
 public:
  // All pointers outlive the service.
  EventService(EventPump::Options options, const SharedManager* manager, const ServingState* state,
               const Admission* admission);

  // Raw: messages are encoded once for all who see the same.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request) override;

  size_t subscribers() const { return streams_.size(); }
  // `lags`: of the open streams that others count in subscriber_metrics(), the events that each has
  // yet to be sent.
  std::vector<prometheus::MetricFamily> CollectSubscribers(std::vector<uint64_t> lags) const;
  SubscriberMetrics& subscriber_metrics() { return subscriber_metrics_; }

  std::vector<SubscriberRow> Subscribers() const;

  // Ends every open Watch stream. Call it when the state is draining.
  void EndStreamsForDrain();
  // Ends the streams whose callers' tokens have been taken back.
  void EndRevokedStreams();

 private:
  absl::StatusOr<WatchStream*> Start(const grpc::CallbackServerContext& context,
                                     const grpc::ByteBuffer& bytes);
  // Where the stream starts. Errors: EPOCH_CHANGED, REVISION_COMPACTED, REVISION_IN_FUTURE,
  // INVALID_ARGUMENT.
  absl::StatusOr<Revision> FirstRevision(const v1::WatchRequest& request) const;
  // What `caller` may see of what is asked for. Errors: INVALID_ARGUMENT, PERMISSION_DENIED,
  // UNKNOWN_TENANT.
  absl::StatusOr<EventFilter> Filter(const v1::WatchRequest& request, const Identity& caller) const;

  const absl::Duration progress_interval_;
  const SharedManager* const manager_;
  const ServingState* const state_;
  const Admission* const admission_;
  SubscriberMetrics subscriber_metrics_;
  WatchStream::Set streams_;
  EventFeeds feeds_;
  EventPump pump_;  // Last: its thread uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_SERVICE_H_
