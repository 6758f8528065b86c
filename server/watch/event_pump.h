// Wakes the subscribers when there are new events.
#ifndef PAGODA_SERVER_WATCH_EVENT_PUMP_H_
#define PAGODA_SERVER_WATCH_EVENT_PUMP_H_

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "events/event_log.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {

// One thread for all subscribers. It waits for the log to grow, then lets every idle stream send
// the new events. A busy stream finds them by itself when its write is done.
class EventPump {
 public:
  struct Options {
    // The time from the first new event to the wake-up. Events in between share one message.
    absl::Duration flush_interval;
    absl::Duration progress_interval;
  };

  // `log` and `streams` must outlive the pump.
  EventPump(Options options, EventLog* log, const WatchStream::Set* streams);
  // Closes the log and ends the thread.
  ~EventPump();

 private:
  void Run();

  const Options options_;
  EventLog* const log_;
  const WatchStream::Set* const streams_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_WATCH_EVENT_PUMP_H_
