#include "server/rpc/session_stream.h"

#include <utility>

#include "base/error.h"
#include "wire/errors.h"
#include "wire/served_fields.h"
#include "wire/vocabulary.h"

namespace pagoda::server {

SessionStream* SessionStream::Start(const BatchRun::Context& context, const CacheDirectory* caches,
                                    SessionOwners* owners, const Identity& caller,
                                    RpcMetrics::Call counted, StreamSlots::Slot slot,
                                    Set* streams) {
  const std::shared_ptr<SessionStream> stream(new SessionStream(
      context, caches, owners, caller, std::move(counted), std::move(slot), streams));
  stream->self_ = stream;
  streams->Add(stream);
  stream->ReadNext();
  return stream.get();
}

void SessionStream::EndSoon(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    ending_.Update(reason);
    if (step_ != Step::kReading) return;  // OnWriteDone ends the call.
    step_ = Step::kFinished;
  }
  FinishCall(reason);
}

void SessionStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    if (step_ == Step::kFinished) return;
    step_ = Step::kRunning;
  }
  // The client has no more batches, or has disconnected.
  if (!ok) return End(absl::OkStatus());
  context_.InTurn(request_bytes_.Length(), [self = self_] { self->Run(); });
}

void SessionStream::Run() {
  const absl::StatusOr<CachePtr> cache = ReadRequest();
  cache.ok() ? StartBatch(*cache) : End(cache.status());
}

void SessionStream::OnBatchDone(const absl::Status& status) {
  const absl::Status outcome =
      status.ok() ? SerializeMessage(*response_, &response_bytes_) : status;
  memory_.Reset();
  if (!outcome.ok()) return End(outcome);
  absl::MutexLock lock(&mutex_);
  batch_.reset();  // Frees its operations, which an idle stream does not need.
  step_ = Step::kWriting;
  StartWrite(&response_bytes_);
}

void SessionStream::OnWriteDone(bool ok) {
  if (!ok) return End(ClientGone());
  absl::Status ending;
  {
    absl::MutexLock lock(&mutex_);
    ending = ending_;
    if (ending.ok()) {
      step_ = Step::kReading;
      ReadNext();
      return;
    }
  }
  End(ending);
}

// Ends a waiting batch, because no client would read its answer. The lease runs from the call's
// end.
void SessionStream::OnCancel() {
  std::shared_ptr<BatchRun> batch;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    batch = batch_;
  }
  if (batch != nullptr) batch->EndWaits(ClientGone());
}

void SessionStream::OnDone() {
  if (session_.has_value()) {
    // If the session's cache is gone, the session is gone with it.
    const absl::StatusOr<CachePtr> cache = caches_->OfSession(session_->id);
    if (cache.ok()) (*cache)->manager->DetachStream(session_->id);
  }
  streams_->Remove(this);
  // Release these now: the objects that count them can be destroyed before queued work that holds
  // this.
  counted_.reset();
  slot_.reset();
  const std::shared_ptr<SessionStream> last = std::move(self_);
}

void SessionStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    step_ = Step::kFinished;
  }
  FinishCall(status);
}

void SessionStream::FinishCall(const absl::Status& status) {
  const grpc::Status grpc_status = ToGrpcStatus(status);
  counted_->Record(grpc_status.error_code());
  Finish(grpc_status);
}

void SessionStream::ReadNext() {
  response_bytes_.Clear();
  StartRead(&request_bytes_);
}

absl::StatusOr<CachePtr> SessionStream::ReadRequest() {
  request_ = google::protobuf::Arena::CreateMessage<v1::SessionRequest>(&memory_);
  response_ = google::protobuf::Arena::CreateMessage<v1::SessionResponse>(&memory_);
  if (absl::Status status = context_.CheckSize(request_bytes_.Length()); !status.ok()) {
    return status;
  }
  absl::Status parsed = ParseMessage(request_bytes_, request_);
  request_bytes_.Clear();
  if (!parsed.ok()) return parsed;
  if (absl::Status status = CheckServed(*request_); !status.ok()) return status;
  return Attach();
}

void SessionStream::StartBatch(const CachePtr& cache) {
  response_->set_batch_id(request_->batch_id());
  const auto batch = std::make_shared<BatchRun>(
      context_.Of(cache->manager, cache), *session_, response_->mutable_result(),
      [self = self_](const absl::Status& status) { self->OnBatchDone(status); });
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    batch_ = batch;
    cancelled = cancelled_;
  }
  if (cancelled) batch->EndWaits(ClientGone());
  batch->Start(request_->batch());
}

absl::StatusOr<CachePtr> SessionStream::Attach() {
  if (!request_->has_session() && !session_.has_value()) {
    return MakeError(Reason::kInvalidArgument,
                     "the first message of a stream must name its session");
  }
  const SessionRef named =
      request_->has_session() ? SessionFromProto(request_->session()) : *session_;
  if (session_.has_value()) {
    if (named.id != session_->id || named.token != session_->token) {
      return MakeError(Reason::kInvalidArgument,
                       "a stream serves only the session that its first message named");
    }
    return caches_->OfSession(named.id);
  }
  if (absl::Status status = owners_->Check(named, caller_); !status.ok()) return status;
  absl::StatusOr<CachePtr> cache = caches_->OfSession(named.id);
  if (!cache.ok()) return cache;
  if (absl::Status status = (*cache)->manager->AttachStream(named); !status.ok()) return status;
  session_ = named;
  return cache;
}

}  // namespace pagoda::server
