// Wakes the subscribers when something has happened.
#ifndef PAGODA_SERVER_WATCH_EVENT_PUMP_H_
#define PAGODA_SERVER_WATCH_EVENT_PUMP_H_

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "events/event_log.h"
#include "server/watch/watch_stream.h"

namespace pagoda::server {

// One thread, for all subscribers: it waits for the log to grow, then lets every stream that is
// idle send what is new. A stream that is busy finds it by itself when its write is done.
class EventPump {
 public:
  struct Options {
    // From the first new event to the wake-up: what happens meanwhile goes into one message.
    absl::Duration flush_interval;
    absl::Duration progress_interval;
  };

  // `log` and `streams` outlive the pump.
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
