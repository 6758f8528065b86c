#include "server/watch/watch_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

// A piece of a snapshot: about one message. The core's lock is held while one piece is read.
constexpr size_t kPieceBlocks = 2048;
constexpr size_t kPieceTokens = size_t{1} << 16;
// After this many pieces without a visible block, the client gets a message nevertheless.
constexpr int kPiecesPerMessage = 16;
// The most reads of the log for one message, even if no event is visible.
constexpr int kReadsPerMessage = 64;

}  // namespace

ErrorMetadata LogBounds(const SharedManager& manager) {
  return {{"oldest_revision", absl::StrCat(manager.log().oldest().value())},
          {"next_revision", absl::StrCat(manager.log().last().value() + 1)},
          {"epoch", absl::StrCat(absl::Hex(manager.epoch().value(), absl::kZeroPad16))}};
}

WatchStream* WatchStream::Start(const SharedManager* manager, Set* streams, const Options& options,
                                std::shared_ptr<EventFeed> feed, StreamSlots::Slot slot) {
  const std::shared_ptr<WatchStream> stream(
      new WatchStream(manager, streams, options, std::move(feed), std::move(slot)));
  stream->self_ = stream;
  options.metrics->Opened();
  // The answer begins now, so an idle subscriber does not wait for its client (ConnectionLimit).
  stream->StartSendInitialMetadata();
  {
    absl::MutexLock lock(&stream->mutex_);
    if (options.snapshot) {
      options.metrics->SnapshotBegun(SubscriberMetrics::Snapshot::kAsked);
      stream->BeginSnapshot(absl::Now());
    } else {
      stream->SendOwn({}, options.from, absl::Now(), {});
    }
  }
  streams->Add(stream);
  manager->log().Wake();  // The pump does not wait for events while there is no stream.
  return stream.get();
}

void WatchStream::Advance(absl::Time now) {
  std::optional<grpc::Status> end;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    end = Step(now);
    finished_ = end.has_value();
    if (finished_) end_code_ = end->error_code();
  }
  // Not under the lock: the call can end before Finish returns.
  if (end.has_value()) Finish(*end);
}

std::optional<grpc::Status> WatchStream::Step(absl::Time now) {
  if (cancelled_) return ToGrpcStatus(absl::CancelledError("the client has disconnected"));
  if (!ending_.ok()) return ToGrpcStatus(ending_);
  const auto last_word = [this] { return ToGrpcStatus(*last_word_, LogBounds(*manager_)); };
  absl::Status status;
  if (snapshot_.has_value()) {
    if (last_word_.has_value()) return last_word();
    status = SendPiece(now);
  } else {
    const absl::StatusOr<bool> sent = SendEvents(now);
    status = sent.status();
    if (sent.ok() && !*sent) {
      if (last_word_.has_value() && covered_ == next_) return last_word();
      if (last_word_.has_value() || now - last_write_ >= options_.progress_interval) {
        SendOwn({}, next_, now, {});
      }
    }
  }
  if (ReasonOf(status) == Reason::kRevisionCompacted && options_.resnapshot_when_behind) {
    options_.metrics->SnapshotBegun(SubscriberMetrics::Snapshot::kBehind);
    BeginSnapshot(now);
    return std::nullopt;
  }
  if (!status.ok()) return ToGrpcStatus(status, LogBounds(*manager_));
  return std::nullopt;
}

absl::StatusOr<bool> WatchStream::SendEvents(absl::Time now) {
  const absl::StatusOr<EventFeed::Next> next = feed_->Read(covered_, next_);
  if (!next.ok()) return next.status();
  const bool moved = next->end != next_;
  next_ = next->end;
  if (next->message != nullptr) {
    Send(next->message->bytes, next_, now);
    return true;
  }
  if (!moved || next_.value() > manager_->log().last().value()) return false;
  // Many events without a visible one: report the progress to the client, and free this thread.
  SendOwn({}, next_, now, {});
  return true;
}

void WatchStream::BeginSnapshot(absl::Time now) {
  snapshot_.emplace();
  // The walk has not passed any id yet, so skipping revisions loses nothing.
  covered_ = next_ = Revision(manager_->log().last().value() + 1);
  v1::WatchResponse envelope;
  envelope.set_snapshot_begin(true);
  SendOwn(std::move(envelope), covered_, now, {});
}

absl::Status WatchStream::SendPiece(absl::Time now) {
  Encoded events;
  // First the events since the last message. A client that reads slowly gets them message by
  // message.
  const Revision last(manager_->log().last().value() + 1);
  absl::StatusOr<Revision> looked = AddPassed(covered_, last, &events);
  if (!looked.ok()) return looked.status();
  bool caught_up = *looked == last;
  for (int pieces = 0; caught_up && pieces < kPiecesPerMessage; ++pieces) {
    const SnapshotPiece piece = manager_->Read([&](const BlockManager& core) {
      return core.ReadSnapshot(*snapshot_, kPieceBlocks, kPieceTokens, manager_->now());
    });
    const Revision end(piece.revision.value() + 1);
    looked = AddPassed(*looked, end, &events);
    if (!looked.ok()) return looked.status();
    // More events than fit into a message have happened since. This piece is read again after them.
    caught_up = *looked == end;
    if (!caught_up) break;
    for (const Event& event : piece.events) {
      feed_->filter().Apply(event, [&](const Event& shown) { events.Add(shown); });
    }
    snapshot_ = piece.end;
    if (piece.end.done || events.count > 0) break;
  }
  v1::WatchResponse envelope;
  envelope.set_snapshot_end(snapshot_->done);
  if (snapshot_->done) snapshot_.reset();
  SendOwn(std::move(envelope), *looked, now, std::move(events.bytes));
  return absl::OkStatus();
}

absl::StatusOr<Revision> WatchStream::AddPassed(Revision from, Revision end, Encoded* out) const {
  const auto add = [&](const Event& event) { out->Add(event); };
  const auto filter = [&](const Event& event) { feed_->filter().Apply(event, add); };
  Revision revision = from;
  for (int read = 0; read < kReadsPerMessage && revision < end; ++read) {
    const auto batches = manager_->log().Read(revision, kMaxEventsPerMessage);
    if (!batches.ok()) return batches.status();
    for (const EventLog::BatchPtr& batch : *batches) {
      const size_t begin = revision.value() - batch->front().revision.value();
      for (size_t i = begin; i < batch->size() && revision < end; ++i) {
        if (out->count >= kMaxEventsPerMessage || out->bytes.size() >= kFullMessageBytes) {
          return revision;
        }
        ForEachPassed((*batch)[i], *snapshot_, filter);
        revision = Revision(revision.value() + 1);
      }
    }
  }
  return revision;
}

void WatchStream::SendOwn(v1::WatchResponse envelope, Revision end, absl::Time now,
                          std::string events) {
  SetEnvelope(*manager_, covered_, end, &envelope);
  envelope.AppendToString(&events);
  const grpc::Slice slice(events);
  Send(grpc::ByteBuffer(&slice, 1), end, now);
}

void WatchStream::Send(const grpc::ByteBuffer& bytes, Revision end, absl::Time now) {
  bytes_ = bytes;
  covered_ = next_ = end;
  last_write_ = now;
  writing_ = true;
  StartWrite(&bytes_);
}

void WatchStream::EndWhenSent(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (!last_word_.has_value()) last_word_ = reason;
  }
  Advance(absl::Now());
}

void WatchStream::Cut() {
  absl::MutexLock lock(&mutex_);
  if (!done_ && options_.context != nullptr) options_.context->TryCancel();
}

void WatchStream::EndNow(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    ending_.Update(reason);
  }
  Advance(absl::Now());
}

uint64_t WatchStream::Lag() const {
  absl::MutexLock lock(&mutex_);
  return manager_->log().last().value() + 1 - next_.value();
}

SubscriberRow WatchStream::Look() const {
  absl::MutexLock lock(&mutex_);
  return {.caller = options_.caller,
          .opened = opened_,
          .sent = Revision(next_.value() - 1),
          .snapshot = snapshot_.has_value(),
          .filtered = feed_->filter() != EventFilter{},
          .writing = writing_};
}

void WatchStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
    // A stream that keeps up waits for the pump, which collects the events of an interval.
    // Otherwise each event would be a separate message.
    const uint64_t behind = manager_->log().last().value() + 1 - next_.value();
    const bool goes_on = !cancelled_ && !last_word_.has_value() && ending_.ok();
    if (goes_on && !snapshot_.has_value() && behind < kMaxEventsPerMessage) {
      if (behind > 0) manager_->log().Wake();
      return;
    }
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
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
    options_.metrics->Closed(SubscriberMetrics::CloseOf(end_code_));
  }
  slot_.reset();  // The object that counts it can be destroyed before other owners of this.
  const std::shared_ptr<WatchStream> last = std::move(self_);
}

}  // namespace pagoda::server
