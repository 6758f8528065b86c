#include "server/watch_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "pools/error.h"
#include "server/translate_events.h"

namespace pagoda::server {
namespace {

// A message holds at most this many events, and no further one once it has this many bytes, so
// that a client's default limit of 4 MiB is enough for all but a single huge event.
constexpr int kMaxEventsPerMessage = 512;
constexpr size_t kFullMessageBytes = 1 << 20;

// Appends the events from `next` on, as many as a message holds. Returns the revision after them.
Revision AppendEvents(const std::vector<EventLog::BatchPtr>& batches, Revision next,
                      v1::WatchResponse* out) {
  size_t bytes = 0;
  for (const EventLog::BatchPtr& batch : batches) {
    const size_t begin = next.value() - batch->front().revision.value();
    for (size_t i = begin; i < batch->size(); ++i) {
      if (out->events_size() == kMaxEventsPerMessage || bytes >= kFullMessageBytes) return next;
      v1::Event* event = out->add_events();
      EventToProto((*batch)[i], event);
      bytes += event->ByteSizeLong();
      next = Revision(next.value() + 1);
    }
  }
  return next;
}

}  // namespace

ErrorMetadata LogBounds(const SharedManager& manager) {
  return {{"oldest_revision", absl::StrCat(manager.log().oldest().value())},
          {"next_revision", absl::StrCat(manager.log().last().value() + 1)},
          {"epoch", absl::StrCat(absl::Hex(manager.epoch().value(), absl::kZeroPad16))}};
}

WatchStream* WatchStream::Start(const SharedManager* manager, Set* streams, Revision from,
                                absl::Duration progress_interval) {
  const std::shared_ptr<WatchStream> stream(
      new WatchStream(manager, streams, from, progress_interval));
  stream->self_ = stream;
  {
    absl::MutexLock lock(&stream->mutex_);
    stream->WriteMessage({}, absl::Now());
  }
  streams->Add(stream);
  return stream.get();
}

void WatchStream::Advance(absl::Time now) {
  std::optional<grpc::Status> end;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    end = Step(now);
    finished_ = end.has_value();
  }
  // Not under the lock: the end of the call may come before Finish returns.
  if (end.has_value()) Finish(*end);
}

std::optional<grpc::Status> WatchStream::Step(absl::Time now) {
  if (cancelled_) return ToGrpcStatus(absl::CancelledError("the client is gone"));
  const auto batches = manager_->log().Read(next_, kMaxEventsPerMessage);
  if (!batches.ok()) return ToGrpcStatus(batches.status(), LogBounds(*manager_));
  if (!batches->empty()) {
    WriteMessage(*batches, now);
  } else if (draining_) {
    return ToGrpcStatus(MakeError(Reason::kDraining, "the daemon is shutting down"),
                        LogBounds(*manager_));
  } else if (now - last_write_ >= progress_interval_) {
    WriteMessage({}, now);
  }
  return std::nullopt;
}

void WatchStream::WriteMessage(const std::vector<EventLog::BatchPtr>& batches, absl::Time now) {
  response_.Clear();
  response_.set_epoch(manager_->epoch().value());
  response_.set_cache(manager_->info().name);
  response_.set_previous_revision(next_.value() - 1);
  next_ = AppendEvents(batches, next_, &response_);
  response_.set_revision(next_.value() - 1);
  last_write_ = now;
  writing_ = true;
  StartWrite(&response_);
}

void WatchStream::EndForDrain() {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }
  Advance(absl::Now());
}

void WatchStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
  }
  Advance(absl::Now());
}

void WatchStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  Advance(absl::Now());
}

void WatchStream::OnDone() {
  streams_->Remove(this);
  const std::shared_ptr<WatchStream> last = std::move(self_);
}

}  // namespace pagoda::server
