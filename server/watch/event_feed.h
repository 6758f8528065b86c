// The messages of a filtered event stream, encoded once for all its subscribers.
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

// A message takes no further event of the log once it has examined this many events, or holds this
// many bytes. A message of a snapshot holds, in addition, a piece of the cache of about the same
// size. Both fit in a client's default limit of 4 MiB, because a single event is bounded too
// (events/event.h).
inline constexpr size_t kMaxEventsPerMessage = 512;
inline constexpr size_t kFullMessageBytes = size_t{256} << 10;

// The messages of one filter. All subscribers' messages end at the same revisions: at the log's
// end, and at every multiple of kMaxEventsPerMessage. Subscribers that keep up therefore share
// messages, regardless of where they started. While the feed has two or more users it keeps the
// last messages, at most kKeptMessages and kKeptBytes. For a subscriber further behind it encodes
// separate messages. Thread-safe.
class EventFeed : public std::enable_shared_from_this<EventFeed> {
 public:
  struct Message {
    Revision begin;          // previous_revision is one less.
    Revision end;            // One past the last revision that it covers.
    grpc::ByteBuffer bytes;  // A v1::WatchResponse.
    size_t num_events = 0;
  };
  struct Next {
    std::shared_ptr<const Message> message;  // Null: no visible event before `end`.
    Revision end;                            // Where to continue.
  };

  // `manager` must outlive the feed.
  EventFeed(const SharedManager* manager, EventFilter filter)
      : manager_(manager), filter_(std::move(filter)) {}

  static constexpr size_t kKeptMessages = 64;
  static constexpr size_t kKeptBytes = size_t{1} << 20;

  const EventFilter& filter() const { return filter_; }
  // The number of kept messages.
  size_t num_kept() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The message for a subscriber that has received everything below `covered`, and for which no
  // event from there to `from` is visible. Without a message, `end` is the log's end, or the limit
  // of what one call examines. Errors: REVISION_COMPACTED.
  absl::StatusOr<Next> Read(Revision covered, Revision from) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<Next> Encode(Revision covered, Revision from) const;

  // Keeps the message if it is the newest and another subscriber may need it.
  void Keep(std::shared_ptr<const Message> message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SharedManager* const manager_;
  const EventFilter filter_;
  mutable absl::Mutex mutex_;  // Locked before the log's lock. Held while a message is encoded.
  std::deque<std::shared_ptr<const Message>> kept_ ABSL_GUARDED_BY(mutex_);  // By begin, ascending.
  size_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The feeds of all filters in use. Thread-safe.
class EventFeeds {
 public:
  explicit EventFeeds(const SharedManager* manager) : manager_(manager) {}
  // The filter's feed. It exists as long as the caller or another one holds it.
  std::shared_ptr<EventFeed> Get(const EventFilter& filter) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const SharedManager* const manager_;
  absl::Mutex mutex_;
  absl::flat_hash_map<EventFilter, std::weak_ptr<EventFeed>> feeds_ ABSL_GUARDED_BY(mutex_);
};

// Sets the fields that every message of the stream has besides its events.
void SetEnvelope(const SharedManager& manager, Revision begin, Revision end,
                 v1::WatchResponse* out);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_FEED_H_
