#include "server/event_pump.h"

#include <memory>

#include "absl/time/clock.h"

namespace pagoda::server {
namespace {

// How often an idle stream is looked at in a progress interval: a mark is at most this share late.
constexpr int kLooksPerInterval = 4;

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
  while (!stop_.HasBeenNotified()) {
    if (log_->WaitBeyond(seen, options_.progress_interval / kLooksPerInterval) > seen) {
      stop_.WaitForNotificationWithTimeout(options_.flush_interval);
    }
    // Before the streams look: what comes after this is found in the next round.
    seen = log_->last();
    const absl::Time now = absl::Now();
    for (const std::shared_ptr<WatchStream>& stream : streams_->All()) stream->Advance(now);
  }
}

}  // namespace pagoda::server
