#include "server/watch/event_pump.h"

#include <memory>

#include "absl/time/clock.h"

namespace pagoda::server {
namespace {

// Idle streams are checked this often per progress interval, so a mark is at most this fraction
// late.
constexpr int kLooksPerInterval = 4;
// The pause after a round, in rounds' durations: the thread uses at most a fifth of a processor.
constexpr int kRestPerRound = 4;

}  // namespace

EventPump::EventPump(Options options, EventLog* log, const WatchStream::Set* streams)
    : options_(options), log_(log), streams_(streams), thread_([this] { Run(); }) {}

EventPump::~EventPump() {
  stop_.Notify();
  log_->Close();
  thread_.join();
}

void EventPump::Run() {
  Revision seen = log_->last();
  uint64_t wakes = 0;
  while (!stop_.HasBeenNotified()) {
    const uint64_t wakes_before = wakes;
    const Revision last =
        log_->WaitBeyond(seen, options_.progress_interval / kLooksPerInterval, &wakes);
    if (last > seen || wakes != wakes_before) {
      stop_.WaitForNotificationWithTimeout(options_.flush_interval);
    }
    // Before the streams read: events after this point are found in the next round.
    seen = log_->last();
    const absl::Time now = absl::Now();
    for (const std::shared_ptr<WatchStream>& stream : streams_->All()) stream->Advance(now);
    // With many subscribers a round takes long. The pause gives them more events at once, and
    // leaves processors free.
    stop_.WaitForNotificationWithTimeout(kRestPerRound * (absl::Now() - now));
  }
}

}  // namespace pagoda::server
