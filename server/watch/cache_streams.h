// The event streams of one cache.
#ifndef PAGODA_SERVER_WATCH_CACHE_STREAMS_H_
#define PAGODA_SERVER_WATCH_CACHE_STREAMS_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "manager/shared_manager.h"
#include "server/calls/subscriber_metrics.h"
#include "server/watch/event_feed.h"
#include "server/watch/event_pump.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {

// The open Watch streams of a cache, the state that they share, and the thread that wakes them. The
// destructor closes the cache's log; no stream may be open then. Thread-safe.
class CacheStreams {
 public:
  // `manager` must outlive this object.
  CacheStreams(const EventPump::Options& options, const SharedManager* manager)
      : progress_interval_(options.progress_interval),
        manager_(manager),
        feeds_(manager),
        pump_(options, &manager->log(), &streams_) {}

  // OK, or why its thread is missing (Thread::Start). It may not be used then.
  const absl::Status& started() const { return pump_.started(); }

  // Opens a stream of the events that pass `filter`. This object fills in the options of the cache.
  WatchStream* Open(WatchStream::Options options, const EventFilter& filter,
                    StreamSlots::Slot slot) {
    options.progress_interval = progress_interval_;
    options.metrics = &metrics_;
    return WatchStream::Start(manager_, &streams_, options, feeds_.Get(filter), std::move(slot));
  }

  const WatchStream::Set& all() const { return streams_; }
  // The metrics of the cache's subscribers, those of bridges included.
  SubscriberMetrics& metrics() { return metrics_; }
  // Ends every stream once it has been sent all events in the log.
  void EndWhenSent(const absl::Status& reason) const {
    for (const std::shared_ptr<WatchStream>& stream : streams_.All()) stream->EndWhenSent(reason);
  }
  // Ends the streams that are still open.
  void Cut() const {
    for (const std::shared_ptr<WatchStream>& stream : streams_.All()) stream->Cut();
  }

 private:
  const absl::Duration progress_interval_;
  const SharedManager* const manager_;
  SubscriberMetrics metrics_;
  WatchStream::Set streams_;
  EventFeeds feeds_;
  EventPump pump_;  // Last: its thread uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_CACHE_STREAMS_H_
