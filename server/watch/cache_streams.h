// Everything that streams one cache's events.
#ifndef PAGODA_SERVER_WATCH_CACHE_STREAMS_H_
#define PAGODA_SERVER_WATCH_CACHE_STREAMS_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "manager/shared_manager.h"
#include "server/metrics/subscriber_metrics.h"
#include "server/watch/event_feed.h"
#include "server/watch/event_pump.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {

// The open Watch streams of a cache, what they share, and the thread that wakes them. Its end
// closes the cache's log; no stream may be open then. Thread-safe.
class CacheStreams {
 public:
  // `manager` outlives this.
  CacheStreams(const EventPump::Options& options, const SharedManager* manager)
      : progress_interval_(options.progress_interval),
        manager_(manager),
        feeds_(manager),
        pump_(options, &manager->log(), &streams_) {}

  // Opens a stream of what `filter` shows. `options` lacks what is of the cache.
  WatchStream* Open(WatchStream::Options options, const EventFilter& filter,
                    StreamSlots::Slot slot) {
    options.progress_interval = progress_interval_;
    options.metrics = &metrics_;
    return WatchStream::Start(manager_, &streams_, options, feeds_.Get(filter), std::move(slot));
  }

  const WatchStream::Set& all() const { return streams_; }
  // Of the cache's subscribers, those of bridges too.
  SubscriberMetrics& metrics() { return metrics_; }
  // Ends every stream behind what the log says now.
  void EndWhenSent(const absl::Status& reason) const {
    for (const std::shared_ptr<WatchStream>& stream : streams_.All()) stream->EndWhenSent(reason);
  }
  // Ends those that are still open.
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
