// Wakes the subscribers when there are new events.
#ifndef PAGODA_SERVER_WATCH_EVENT_PUMP_H_
#define PAGODA_SERVER_WATCH_EVENT_PUMP_H_

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/thread.h"
#include "events/event_log.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {

// One thread for all subscribers. It lets every idle stream send the new events, in rounds. A busy
// stream finds them by itself when its write is done.
//
// Invariants
// 1. While nothing happens, the first event begins a round after flush_interval. While events keep
// coming, rounds follow each other by the clock: flush_interval and four times the last round's
// duration apart. So a stream that keeps up gets an event at most that, and one round, later.
// 2. A caller that makes events wakes this thread only after a pause of the events, and never while
// there is no stream.
class EventPump {
 public:
  struct Options {
    // The time from the first event after a pause to the round, and the least time between rounds.
    // Events in between share one message.
    absl::Duration flush_interval;
    absl::Duration progress_interval;
  };

  // `log` and `streams` must outlive the pump.
  EventPump(Options options, EventLog* log, const WatchStream::Set* streams);
  // Closes the log and ends the thread.
  ~EventPump();

  // OK, or why its thread is missing (Thread::Start). It may not be used then.
  const absl::Status& started() const { return started_; }

 private:
  void Run();

  const Options options_;
  EventLog* const log_;
  const WatchStream::Set* const streams_;
  absl::Notification stop_;
  absl::Status started_;
  Thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_PUMP_H_
