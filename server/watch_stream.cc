#include "server/watch_stream.h"

#include <utility>
#include <variant>

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

// How many events are looked at, read by read, before a viewer who may see none of them gets a
// mark.
constexpr int kReadsPerMark = 64;

// Appends the visible events from `next` on, as many as a message holds. Returns the revision after
// those that were looked at.
Revision AppendEvents(const std::vector<EventLog::BatchPtr>& batches, Revision next,
                      const Viewer& viewer, v1::WatchResponse* out) {
  size_t bytes = 0;
  for (const EventLog::BatchPtr& batch : batches) {
    const size_t begin = next.value() - batch->front().revision.value();
    for (size_t i = begin; i < batch->size(); ++i) {
      if (out->events_size() == kMaxEventsPerMessage || bytes >= kFullMessageBytes) return next;
      next = Revision(next.value() + 1);
      if (!Visible((*batch)[i], viewer)) continue;
      v1::Event* event = out->add_events();
      EventToProto((*batch)[i], event);
      bytes += event->ByteSizeLong();
    }
  }
  return next;
}

}  // namespace

bool Visible(const Event& event, const Viewer& viewer) {
  if (viewer.caller.is_operator()) return true;
  const auto* removed = std::get_if<RemovedEvent>(&event.what);
  if (removed != nullptr && removed->scope == RemovedEvent::Scope::kWindow) return true;
  return viewer.tenants->MaySee(viewer.caller.tenant, event.tenant);
}

ErrorMetadata LogBounds(const SharedManager& manager) {
  return {{"oldest_revision", absl::StrCat(manager.log().oldest().value())},
          {"next_revision", absl::StrCat(manager.log().last().value() + 1)},
          {"epoch", absl::StrCat(absl::Hex(manager.epoch().value(), absl::kZeroPad16))}};
}

WatchStream* WatchStream::Start(const SharedManager* manager, Set* streams, Revision from,
                                absl::Duration progress_interval, Viewer viewer) {
  const std::shared_ptr<WatchStream> stream(
      new WatchStream(manager, streams, from, progress_interval, std::move(viewer)));
  stream->self_ = stream;
  {
    absl::MutexLock lock(&stream->mutex_);
    stream->WriteMessage(absl::Now());
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
  response_.Clear();
  bool more = true;
  for (int reads = 0; more && reads < kReadsPerMark && response_.events_size() == 0; ++reads) {
    const absl::StatusOr<bool> read = ReadOn();
    if (!read.ok()) return ToGrpcStatus(read.status(), LogBounds(*manager_));
    more = *read;
  }
  if (response_.events_size() > 0 || more) {
    WriteMessage(now);
  } else if (draining_ && covered_ == next_) {
    return ToGrpcStatus(MakeError(Reason::kDraining, "the daemon is shutting down"),
                        LogBounds(*manager_));
  } else if (draining_ || now - last_write_ >= progress_interval_) {
    WriteMessage(now);
  }
  return std::nullopt;
}

absl::StatusOr<bool> WatchStream::ReadOn() {
  const auto batches = manager_->log().Read(next_, kMaxEventsPerMessage);
  if (!batches.ok()) return batches.status();
  next_ = AppendEvents(*batches, next_, viewer_, &response_);
  return !batches->empty();
}

void WatchStream::WriteMessage(absl::Time now) {
  response_.set_epoch(manager_->epoch().value());
  response_.set_cache(manager_->info().name);
  response_.set_previous_revision(covered_.value() - 1);
  response_.set_revision(next_.value() - 1);
  covered_ = next_;
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
