// One call of EventService.Watch: a cursor in the event log.
#ifndef PAGODA_SERVER_WATCH_STREAM_H_
#define PAGODA_SERVER_WATCH_STREAM_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "events/event_log.h"
#include "grpcpp/support/server_callback.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/events.pb.h"
#include "server/error_map.h"
#include "server/identity.h"
#include "server/stream_set.h"

namespace pagoda::server {

// What a client that starts elsewhere needs: oldest_revision, next_revision, epoch (hexadecimal).
ErrorMetadata LogBounds(const SharedManager& manager);

// Who watches.
struct Viewer {
  Identity caller;
  const TenantTable* tenants;  // Outlives the stream.
};

// Whether the event is one that the viewer may see: an operator all, a tenant its own, and where it
// shares the commons' too. That everything of a window left the cache concerns everybody.
bool Visible(const Event& event, const Viewer& viewer);

// Reads the log at its own pace and has one write outstanding: a slow client falls behind in the
// log, and costs no memory. Events that the viewer may not see are left out, and the messages cover
// their revisions all the same: a gap is a gap for everybody. Thread-safe; lives as long as its
// call and whoever holds it.
//
// Invariants: the messages sent so far cover the revisions up to covered_ - 1; none of the events
// from there to next_ - 1 is visible.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchResponse> {
 public:
  using Set = StreamSet<WatchStream>;

  // Sends the first message, without events. `from` is in the log or is the next revision. The
  // stream is in `streams` until its call is over; both outlive it.
  static WatchStream* Start(const SharedManager* manager, Set* streams, Revision from,
                            absl::Duration progress_interval, Viewer viewer);

  // If no write is outstanding: sends what has happened, or a progress mark if nothing was sent for
  // the progress interval. Does not block.
  void Advance(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the call with DRAINING once the client has been sent everything.
  void EndForDrain() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchStream(const SharedManager* manager, Set* streams, Revision from,
              absl::Duration progress_interval, Viewer viewer)
      : manager_(manager),
        streams_(streams),
        progress_interval_(progress_interval),
        viewer_(std::move(viewer)),
        covered_(from),
        next_(from) {}

  // Starts a write if there is one to start; returns the status if it is time to end.
  std::optional<grpc::Status> Step(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the next events that are visible into response_, and moves next_ behind those that it has
  // looked at. False where the log has no more.
  absl::StatusOr<bool> ReadOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends response_ with its events, or as a progress mark without any.
  void WriteMessage(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SharedManager* const manager_;
  Set* const streams_;
  const absl::Duration progress_interval_;
  const Viewer viewer_;
  std::shared_ptr<WatchStream> self_;  // The call's share; given up in OnDone.

  absl::Mutex mutex_;  // Taken before the log's lock and gRPC's own.
  Revision covered_ ABSL_GUARDED_BY(mutex_);
  Revision next_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_write_ ABSL_GUARDED_BY(mutex_);
  v1::WatchResponse response_ ABSL_GUARDED_BY(mutex_);  // gRPC's while writing_.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_STREAM_H_
