#ifndef PAGODA_SERVER_EVENT_SERVICE_H_
#define PAGODA_SERVER_EVENT_SERVICE_H_

#include "absl/status/statusor.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/events.grpc.pb.h"
#include "server/admission.h"
#include "server/event_pump.h"
#include "server/serving_state.h"
#include "server/watch_stream.h"

namespace pagoda::server {

// pagoda.v1.EventService. Thread-safe.
class EventService final : public v1::EventService::CallbackService {
 public:
  // All pointers outlive the service.
  EventService(EventPump::Options options, const SharedManager* manager, const ServingState* state,
               const Admission* admission);

  grpc::ServerWriteReactor<v1::WatchResponse>* Watch(grpc::CallbackServerContext* context,
                                                     const v1::WatchRequest* request) override;

  size_t subscribers() const { return streams_.size(); }

  // Ends every open Watch stream. Call it when the state is draining.
  void EndStreamsForDrain();

 private:
  // Where the stream starts. Errors: DRAINING, FIELD_NOT_SERVED, EPOCH_CHANGED,
  // REVISION_COMPACTED, REVISION_IN_FUTURE.
  absl::StatusOr<Revision> FirstRevision(const v1::WatchRequest& request) const;

  const absl::Duration progress_interval_;
  const SharedManager* const manager_;
  const ServingState* const state_;
  const Admission* const admission_;
  WatchStream::Set streams_;
  EventPump pump_;  // Last: its thread uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_EVENT_SERVICE_H_
