#include "server/bridges/smg_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "wire/errors.h"

namespace pagoda::server {
SmgStream* SmgStream::Start(const Context& context, uint64_t next,
                            std::shared_ptr<SmgMessages> messages, const Identity& caller,
                            StreamSlots::Slot slot) {
  const std::shared_ptr<SmgStream> stream(
      new SmgStream(context, next, std::move(messages), caller, std::move(slot)));
  stream->self_ = stream;
  context.metrics->Opened();
  context.streams->Add(stream);
  // Tells the client that the stream has begun: the first batch may come much later.
  stream->StartSendInitialMetadata();
  stream->Advance();
  return stream.get();
}

void SmgStream::Advance() {
  std::optional<grpc::Status> end;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    end = Step();
    finished_ = end.has_value();
    if (finished_) end_code_ = end->error_code();
  }
  // Not under the lock, because the call can end before Finish returns.
  if (end.has_value()) Finish(*end);
}

std::optional<grpc::Status> SmgStream::Step() {
  if (cancelled_) return ToGrpcStatus(absl::CancelledError("the client is gone"));
  if (!ending_.ok()) return ToGrpcStatus(ending_);
  const absl::StatusOr<RouterBatchPtr> batch = context_.ring->At(next_);
  if (!batch.ok()) return ToGrpcStatus(batch.status());
  if (*batch != nullptr) {
    message_ = messages_->Get(**batch);
    sent_ = (*batch)->revision;
    ++next_;
    writing_ = true;
    StartWrite(&message_);
  } else if (draining_) {
    return ToGrpcStatus(MakeError(Reason::kDraining, "the daemon is shutting down"));
  }
  return std::nullopt;
}

void SmgStream::EndForDrain() {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }
  Advance();
}

void SmgStream::EndNow(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    ending_.Update(reason);
  }
  Advance();
}

SubscriberRow SmgStream::Look(Revision read) const {
  absl::MutexLock lock(&mutex_);
  return {.kind = SubscriberRow::Kind::kSmg,
          .caller = caller_,
          .opened = opened_,
          .sent = next_ == context_.ring->next() ? std::max(read, sent_) : sent_,
          .filtered = !caller_.is_operator(),
          .writing = writing_};
}

void SmgStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
  }
  Advance();
}

void SmgStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
  }
  Advance();
}

void SmgStream::OnDone() {
  context_.streams->Remove(this);
  {
    absl::MutexLock lock(&mutex_);
    context_.metrics->Closed(SubscriberMetrics::CloseOf(end_code_));
  }
  // The counter of slots can be destroyed before a reader of the set lets this stream go.
  slot_.reset();
  const std::shared_ptr<SmgStream> last = std::move(self_);
}

}  // namespace pagoda::server
