#include "server/session_stream.h"

#include <utility>

#include "pools/error.h"
#include "server/batch.h"
#include "server/error_map.h"
#include "server/served_fields.h"
#include "server/translate.h"

namespace pagoda::server {
namespace {

absl::Status Draining() {
  return MakeError(Reason::kDraining,
                   "the daemon is shutting down; the session lives on its lease");
}

}  // namespace

SessionStream* SessionStream::Start(SharedManager* manager, Set* streams) {
  const std::shared_ptr<SessionStream> stream(new SessionStream(manager, streams));
  stream->self_ = stream;
  streams->Add(stream);
  stream->StartRead(&stream->request_);
  return stream.get();
}

void SessionStream::EndForDrain() {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    if (step_ != Step::kReading) return;  // OnWriteDone ends the call.
    step_ = Step::kFinished;
  }
  Finish(ToGrpcStatus(Draining()));
}

void SessionStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    if (step_ == Step::kFinished) return;
    step_ = Step::kRunning;
  }
  // The client has no more batches, or is gone.
  if (!ok) return End(absl::OkStatus());
  if (const absl::Status status = Run(); !status.ok()) return End(status);
  absl::MutexLock lock(&mutex_);
  step_ = Step::kWriting;
  StartWrite(&response_);
}

void SessionStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the client is gone"));
  {
    absl::MutexLock lock(&mutex_);
    if (!draining_) {
      step_ = Step::kReading;
      StartRead(&request_);
      return;
    }
  }
  End(Draining());
}

void SessionStream::OnDone() {
  if (session_.has_value()) manager_->DetachStream(session_->id);
  streams_->Remove(this);
  const std::shared_ptr<SessionStream> last = std::move(self_);
}

void SessionStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    step_ = Step::kFinished;
  }
  Finish(ToGrpcStatus(status));
}

absl::Status SessionStream::Run() {
  if (absl::Status status = CheckServed(request_); !status.ok()) return status;
  if (absl::Status status = Attach(); !status.ok()) return status;
  response_.Clear();
  response_.set_batch_id(request_.batch_id());
  return RunBatch(*manager_, *session_, request_.batch(), response_.mutable_result());
}

absl::Status SessionStream::Attach() {
  if (session_.has_value() && !request_.has_session()) return absl::OkStatus();
  if (!request_.has_session()) {
    return MakeError(Reason::kInvalidArgument, "the first message of a stream names its session");
  }
  const SessionRef named = SessionFromProto(request_.session());
  if (session_.has_value()) {
    if (named.id == session_->id && named.token == session_->token) return absl::OkStatus();
    return MakeError(Reason::kInvalidArgument, "a stream serves one session, the first one named");
  }
  if (absl::Status status = manager_->AttachStream(named); !status.ok()) return status;
  session_ = named;
  return absl::OkStatus();
}

}  // namespace pagoda::server
