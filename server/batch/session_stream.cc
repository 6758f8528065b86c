#include "server/batch/session_stream.h"

#include <utility>

#include "wire/bytes/batch_bytes.h"
#include "wire/bytes/message_bytes.h"
#include "wire/errors.h"

namespace pagoda::server {

SessionStream* SessionStream::Start(const BatchRun::Context& context, const CacheDirectory* caches,
                                    SessionOwners* owners, const Identity& caller,
                                    RpcMetrics::Call counted, UntakenAnswers::Call untaken,
                                    StreamSlots::Slot slot, Set* streams) {
  const std::shared_ptr<SessionStream> stream(
      new SessionStream(context, caches, owners, caller, std::move(counted), std::move(untaken),
                        std::move(slot), streams));
  stream->self_ = stream;
  streams->Add(stream);
  // The answer begins now. Without one the stream is an incomplete request, which would end its
  // connection (ConnectionLimit).
  stream->StartSendInitialMetadata();
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
  const size_t bytes = request_bytes_.Length();
  const auto parse = [this](v1::SessionRequest* request, uint64_t* fingerprint) {
    absl::Status parsed = ParseMessage(request_bytes_, request);
    if (parsed.ok() && request->batch().retry_id() != 0) {
      *fingerprint = BatchFingerprint(request_bytes_);
    }
    request_bytes_.Clear();
    return parsed;
  };
  const absl::Status read = batches_.Read(bytes, parse);
  if (!read.ok()) return OnBatchDone(read);
  context_.RunRead(batches_.num_operations(), bytes, [self = self_] {
    self->batches_.Start(
        [self](const absl::StatusOr<BatchAnswer>& outcome) { self->OnBatchDone(outcome); });
  });
}

void SessionStream::OnBatchDone(const absl::StatusOr<BatchAnswer>& outcome) {
  if (outcome.ok()) response_bytes_ = ResponseBytes(*outcome, batches_.batch_id());
  batches_.Clear();
  if (!outcome.ok()) return End(outcome.status());
  absl::MutexLock lock(&mutex_);
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

void SessionStream::OnDone() {
  batches_.Detach();
  streams_->Remove(this);
  // Release these now: the objects that count them can be destroyed before queued work that holds
  // this.
  counted_.reset();
  untaken_.reset();
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
  untaken_->SetAnswered();
  Finish(grpc_status);
}

void SessionStream::ReadNext() {
  response_bytes_.Clear();
  StartRead(&request_bytes_);
}

}  // namespace pagoda::server
