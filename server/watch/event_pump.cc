#include "server/watch/event_pump.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/time/clock.h"

namespace pagoda::server {
namespace {

// Idle streams are checked this often per progress interval, so a mark is at most this fraction
// late.
constexpr int kLooksPerInterval = 4;
// The pause after a round, in rounds' durations: the thread uses at most a fifth of a processor.
constexpr int kRestPerRound = 4;
// No event has this revision.
constexpr Revision kNever{std::numeric_limits<uint64_t>::max()};

}  // namespace

EventPump::EventPump(Options options, EventLog* log, const WatchStream::Set* streams)
    : options_(options), log_(log), streams_(streams) {
  started_ = thread_.Start("pagoda-events", [this] { Run(); });
}

EventPump::~EventPump() {
  stop_.Notify();
  log_->Close();
  thread_.Join();
}

void EventPump::Run() {
  Revision seen = log_->last();
  uint64_t wakes = 0;
  bool idle = true;
  while (!stop_.HasBeenNotified()) {
    if (idle) {
      // Without subscribers an event is no reason to wake up: waking a thread takes time of the
      // caller that made the event. A new stream wakes this thread.
      const Revision beyond = streams_->size() == 0 ? kNever : seen;
      const uint64_t wakes_before = wakes;
      const Revision last =
          log_->WaitBeyond(beyond, options_.progress_interval / kLooksPerInterval, &wakes);
      if (last > beyond || wakes != wakes_before) {
        stop_.WaitForNotificationWithTimeout(options_.flush_interval);
      }
    }
    // Before the streams read: events after this point are found in the next round.
    const Revision last = log_->last();
    const absl::Time now = absl::Now();
    size_t advanced = 0;
    for (const std::shared_ptr<WatchStream>& stream : streams_->All()) {
      stream->Advance(now);
      ++advanced;
    }
    idle = advanced == 0 || last == seen;
    seen = last;
    // With many subscribers a round takes long. The pause gives them more events at once, and
    // leaves processors free. While events keep coming, this thread looks by the clock, and no
    // caller has to wake it.
    stop_.WaitForNotificationWithTimeout((idle ? absl::ZeroDuration() : options_.flush_interval) +
                                         kRestPerRound * (absl::Now() - now));
  }
}

}  // namespace pagoda::server
