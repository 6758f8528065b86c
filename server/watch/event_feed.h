// The messages of a filtered event stream, encoded once for all who follow it.
#ifndef PAGODA_SERVER_WATCH_EVENT_FEED_H_
#define PAGODA_SERVER_WATCH_EVENT_FEED_H_

#include <cstddef>
#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "events/event_filter.h"
#include "events/event_log.h"
#include "grpcpp/support/byte_buffer.h"
#include "manager/shared_manager.h"
#include "pagoda/v1/events.pb.h"

namespace pagoda::server {

// A message takes no further event of the log once it has looked at this many, or holds this many
// bytes; a snapshot's has a piece of the cache beside them, of about as many. Small enough for a
// client's default limit of 4 MiB, for a single event is bounded too (events/event.h).
inline constexpr size_t kMaxEventsPerMessage = 512;
inline constexpr size_t kFullMessageBytes = size_t{256} << 10;

// One filter's. Messages end where all subscribers' messages end (at the log's end, and at every
// revision that kMaxEventsPerMessage divides), so those who keep up share them, from whichever
// revision they came. The last ones are kept while the feed has two users: at most kKeptMessages,
// and kKeptBytes. Who is further behind has his own encoded. Thread-safe.
class EventFeed : public std::enable_shared_from_this<EventFeed> {
 public:
  struct Message {
    Revision begin;          // previous_revision is one less.
    Revision end;            // Behind the last revision that it covers.
    grpc::ByteBuffer bytes;  // A v1::WatchResponse.
    size_t num_events = 0;
  };
  struct Next {
    std::shared_ptr<const Message> message;  // None: nothing visible up to `end`.
    Revision end;                            // Where to go on.
  };

  // `manager` outlives the feed.
  EventFeed(const SharedManager* manager, EventFilter filter)
      : manager_(manager), filter_(std::move(filter)) {}

  static constexpr size_t kKeptMessages = 64;
  static constexpr size_t kKeptBytes = size_t{1} << 20;

  const EventFilter& filter() const { return filter_; }
  // Messages that are kept.
  size_t num_kept() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The message for a subscriber who has had everything below `covered`, and for whom there is
  // nothing visible from there to `from`. Without one, `end` is where the log ends, or as far as
  // one call looks. Errors: REVISION_COMPACTED.
  absl::StatusOr<Next> Read(Revision covered, Revision from) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<Next> Encode(Revision covered, Revision from) const;

  // Keeps the message if it is the newest and somebody else may want it.
  void Keep(std::shared_ptr<const Message> message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SharedManager* const manager_;
  const EventFilter filter_;
  mutable absl::Mutex mutex_;  // Taken before the log's lock. Held while a message is encoded.
  std::deque<std::shared_ptr<const Message>> kept_ ABSL_GUARDED_BY(mutex_);  // By begin, ascending.
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The feeds of all filters in use. Thread-safe.
class EventFeeds {
 public:
  explicit EventFeeds(const SharedManager* manager) : manager_(manager) {}
  // The filter's feed, which lives as long as somebody has it.
  std::shared_ptr<EventFeed> Get(const EventFilter& filter) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const SharedManager* const manager_;
  absl::Mutex mutex_;
  absl::flat_hash_map<EventFilter, std::weak_ptr<EventFeed>> feeds_ ABSL_GUARDED_BY(mutex_);
};

// What every message of the stream says, apart from its events.
void SetEnvelope(const SharedManager& manager, Revision begin, Revision end,
                 v1::WatchResponse* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_FEED_H_
