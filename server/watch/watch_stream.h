// One call of EventService.Watch: a cursor in the event log.
#ifndef PAGODA_SERVER_WATCH_WATCH_STREAM_H_
#define PAGODA_SERVER_WATCH_WATCH_STREAM_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "events/snapshot.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/events.pb.h"
#include "server/callers/stream_slots.h"
#include "server/calls/stream_set.h"
#include "server/calls/subscriber_metrics.h"
#include "server/watch/event_feed.h"
#include "server/watch/subscriber_row.h"
#include "wire/errors.h"
#include "wire/event_bytes.h"

namespace pagoda::server {

// The error details that a client needs to start elsewhere: oldest_revision, next_revision, epoch
// (hexadecimal).
ErrorMetadata LogBounds(const SharedManager& manager);

// Reads the log at its own pace with one outstanding write: a slow client falls behind in the log,
// and costs no memory. Events that its filter hides are left out, but the messages still cover
// their revisions, so a gap in the revisions always means lost events. Thread-safe. It is alive as
// long as its call or another owner.
//
// Invariants: the messages sent so far cover the revisions up to covered_ - 1. None of the events
// from there to next_ - 1 is visible. During a snapshot, for the ids that the walk has passed, the
// client has the state at covered_ - 1.
class WatchStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  using Set = StreamSet<WatchStream>;

  struct Options {
    Revision from;  // In the log, or the next revision. Ignored with a snapshot.
    bool snapshot = false;
    bool resnapshot_when_behind = false;
    absl::Duration progress_interval;
    SubscriberMetrics* metrics = nullptr;  // Must outlive the stream.
    Identity caller;
    // Valid until the call is over.
    grpc::CallbackServerContext* context = nullptr;
    // Keeps the cache alive as long as the stream.
    std::shared_ptr<const void> cache;
  };

  // Sends the first message, without events. The stream is in `streams` until its call is over.
  // `manager` and `streams` must outlive it.
  static WatchStream* Start(const SharedManager* manager, Set* streams, const Options& options,
                            std::shared_ptr<EventFeed> feed, StreamSlots::Slot slot);

  // If no write is outstanding: sends the new events, or a progress mark if nothing was sent for
  // the progress interval. Does not block.
  void Advance(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the call with `reason` (DRAINING, or UNKNOWN_CACHE if the cache is dropped) once the
  // client has been sent everything. A snapshot ends at once.
  void EndWhenSent(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the call with `reason` before sending anything else.
  void EndNow(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the call even if its client has not read all it was sent.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_);
  const Identity& caller() const { return options_.caller; }

  // The events in the log that this stream has not processed. During a snapshot, events before its
  // start do not count.
  uint64_t Lag() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Its state, as shown to operators.
  SubscriberRow Look() const ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchStream(const SharedManager* manager, Set* streams, const Options& options,
              std::shared_ptr<EventFeed> feed, StreamSlots::Slot slot)
      : manager_(manager),
        streams_(streams),
        options_(options),
        feed_(std::move(feed)),
        slot_(std::move(slot)),
        covered_(options.from),
        next_(options.from) {}

  struct Encoded {
    std::string bytes;
    size_t count = 0;

    void Add(const Event& event) {
      AppendEncoded(event, &bytes);
      ++count;
    }
  };

  // Starts the next write, if there is one. Returns the status if the call has to end.
  std::optional<grpc::Status> Step(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the next message with events. False: there is none yet.
  absl::StatusOr<bool> SendEvents(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the next message of the snapshot.
  absl::Status SendPiece(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the events at passed ids with revisions from `from` to below `end`, as far as the message
  // has space. Returns one past the last revision that it examined.
  absl::StatusOr<Revision> AddPassed(Revision from, Revision end, Encoded* out) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginSnapshot(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends a message that only this stream gets, and that covers the revisions below `end`.
  // `events`: encoded.
  void SendOwn(v1::WatchResponse envelope, Revision end, absl::Time now, std::string events)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(const grpc::ByteBuffer& bytes, Revision end, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SharedManager* const manager_;
  Set* const streams_;
  const Options options_;
  const absl::Time opened_ = SharedManager::Now();
  const std::shared_ptr<EventFeed> feed_;
  std::optional<StreamSlots::Slot> slot_;  // Until the call is over.
  std::shared_ptr<WatchStream> self_;      // The call's ownership; given up in OnDone.

  mutable absl::Mutex mutex_;  // Locked before the locks of the core, the feed and gRPC.
  Revision covered_ ABSL_GUARDED_BY(mutex_);
  Revision next_ ABSL_GUARDED_BY(mutex_);
  std::optional<SnapshotPosition> snapshot_ ABSL_GUARDED_BY(mutex_);  // While one is sent.
  absl::Time last_write_ ABSL_GUARDED_BY(mutex_);
  grpc::ByteBuffer bytes_ ABSL_GUARDED_BY(mutex_);  // Used by gRPC while writing_ is set.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> last_word_ ABSL_GUARDED_BY(mutex_);  // Set by EndWhenSent.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;    // The call is over, and its context is gone.
  absl::Status ending_ ABSL_GUARDED_BY(mutex_);  // Set by EndNow.
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::StatusCode end_code_ ABSL_GUARDED_BY(mutex_) = grpc::StatusCode::CANCELLED;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_WATCH_STREAM_H_
