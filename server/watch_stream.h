// One call of EventService.Watch: a cursor in the event log.
#ifndef PAGODA_SERVER_WATCH_STREAM_H_
#define PAGODA_SERVER_WATCH_STREAM_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "events/event_log.h"
#include "grpcpp/support/server_callback.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/events.pb.h"
#include "server/error_map.h"
#include "server/stream_set.h"

namespace pagoda::server {

// What a client that starts elsewhere needs: oldest_revision, next_revision, epoch (hexadecimal).
ErrorMetadata LogBounds(const SharedManager& manager);

// Reads the log at its own pace and has one write outstanding: a slow client falls behind in the
// log, and costs no memory. Thread-safe; lives as long as its call and whoever holds it.
//
// Invariant: the messages sent so far cover the revisions up to next_ - 1.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchResponse> {
 public:
  using Set = StreamSet<WatchStream>;

  // Sends the first message, without events. `from` is in the log or is the next revision. The
  // stream is in `streams` until its call is over; both outlive it.
  static WatchStream* Start(const SharedManager* manager, Set* streams, Revision from,
                            absl::Duration progress_interval);

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
              absl::Duration progress_interval)
      : manager_(manager), streams_(streams), progress_interval_(progress_interval), next_(from) {}

  // Starts a write if there is one to start; returns the status if it is time to end.
  std::optional<grpc::Status> Step(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteMessage(const std::vector<EventLog::BatchPtr>& batches, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SharedManager* const manager_;
  Set* const streams_;
  const absl::Duration progress_interval_;
  std::shared_ptr<WatchStream> self_;  // The call's share; given up in OnDone.

  absl::Mutex mutex_;  // Taken before the log's lock and gRPC's own.
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
