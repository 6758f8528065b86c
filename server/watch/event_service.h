#ifndef PAGODA_SERVER_WATCH_EVENT_SERVICE_H_
#define PAGODA_SERVER_WATCH_EVENT_SERVICE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "manager/accounts/tenants.h"
#include "pagoda/v1/events.pb.h"
#include "server/callers/admission.h"
#include "server/calls/checked_service.h"
#include "server/directory/cache_directory.h"
#include "server/supervision/serving_state.h"
#include "server/watch/subscriber_row.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {

// The events that the caller can see. An operator sees all. A tenant sees its own, and the default
// tenant's if it shares them.
EventFilter VisibleTo(const Identity& caller, const TenantTable& tenants);

// pagoda.v1.EventService. Thread-safe.
class EventService final : public CheckedService {
 public:
  // All pointers must outlive the service.
  EventService(const CacheDirectory* caches, const ServingState* state, const Admission* admission);
  ~EventService() override;

  // Answers with bytes, because messages are encoded once for all subscribers with the same filter.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const Identity& caller,
                                                    const v1::WatchRequest& request);

  // The subscribers of one cache.
  static std::vector<SubscriberRow> Subscribers(const CacheParts& cache);

  // Ends every open Watch stream. Call it when the state is draining.
  void EndStreamsForDrain();
  // Ends the streams whose callers' tokens were revoked.
  void EndRevokedStreams();

 private:
  // `cache`: set if the call names an existing cache.
  absl::StatusOr<WatchStream*> Start(grpc::CallbackServerContext* context, const Identity& caller,
                                     const v1::WatchRequest& request, CachePtr* cache);
  // The visible part of the requested events. Errors: INVALID_ARGUMENT, PERMISSION_DENIED,
  // UNKNOWN_TENANT, UNKNOWN_WINDOW.
  absl::StatusOr<EventFilter> Filter(const v1::WatchRequest& request, const CacheInfo& cache,
                                     const Identity& caller) const;
  std::vector<std::shared_ptr<WatchStream>> AllStreams() const;

  const CacheDirectory* const caches_;
  const ServingState* const state_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_SERVICE_H_
