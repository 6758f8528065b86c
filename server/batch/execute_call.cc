#include "server/batch/execute_call.h"

#include "server/calls/reactors.h"
#include "wire/bytes/batch_bytes.h"
#include "wire/errors.h"
#include "wire/served_fields.h"
#include "wire/vocabulary.h"

namespace pagoda::server {

// The reactor of a call that is answered after its handler has returned. Deletes itself.
class ExecuteCall::Reactor final : public grpc::ServerUnaryReactor {
 public:
  Reactor(std::shared_ptr<ExecuteCall> call, RpcMetrics::Call counted, UntakenAnswers::Call untaken)
      : call_(std::move(call)), counted_(std::move(counted)), untaken_(std::move(untaken)) {}

  // The caller must not use this object afterwards.
  void End(const absl::Status& status) {
    const grpc::Status grpc_status = ToGrpcStatus(status);
    counted_.Record(grpc_status.error_code());
    untaken_.SetAnswered();
    Finish(grpc_status);
  }

  void OnCancel() override { call_->OnCancel(); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<ExecuteCall> call_;
  RpcMetrics::Call counted_;
  UntakenAnswers::Call untaken_;
};

grpc::ServerUnaryReactor* ExecuteCall::Start(const BatchRun::Context& context,
                                             const CacheDirectory* caches, SessionOwners* owners,
                                             const Identity& caller, UntakenAnswers::Call untaken,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* answer, RpcMetrics::Call counted) {
  const std::shared_ptr<ExecuteCall> call(
      new ExecuteCall(context, caches, owners, caller, request, answer));
  absl::Status admitted = context.CheckSize(request->Length());
  if (admitted.ok()) admitted = context.CheckCapacity();
  if (admitted.ok()) {
    context.InTurn(request->Length(), [call] { call->Run(); });
  } else {
    call->OnBatchDone(admitted);
  }
  const auto end = call->OnHandlerDone(counted, untaken);
  if (const auto* waiting = std::get_if<Reactor*>(&end)) return *waiting;
  const grpc::Status grpc_status = ToGrpcStatus(std::get<absl::Status>(end));
  counted.Record(grpc_status.error_code());  // Before the client can ask for the count.
  return new ObservedAnswer(std::move(untaken), grpc_status);
}

void ExecuteCall::Run() {
  const absl::StatusOr<CachePtr> cache = Read();
  if (!cache.ok()) return OnBatchDone(cache.status());
  context_.RunRead(request_->batch().operations_size(), request_bytes_->Length(),
                   [self = shared_from_this(), cache = *cache] { self->RunBatch(cache); });
}

void ExecuteCall::RunBatch(const CachePtr& cache) {
  const auto batch = std::make_shared<BatchRun>(
      context_.Of(cache->manager, cache), SessionFromProto(request_->session()),
      [self = shared_from_this()](const absl::StatusOr<BatchAnswer>& outcome) {
        self->OnBatchDone(outcome);
      });
  bool cancelled = false;
  {
    absl::MutexLock lock(&mutex_);
    batch_ = batch;
    cancelled = cancelled_;
  }
  if (cancelled) batch->EndWaits(ClientGone());
  const v1::Batch& operations = request_->batch();
  batch->Start(operations, operations.retry_id() == 0 ? 0 : BatchFingerprint(*request_bytes_),
               [this] { memory_.Reset(); });
}

absl::StatusOr<CachePtr> ExecuteCall::Read() {
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return ClientGone();
  }
  if (absl::Status status = context_.state->CheckAcceptsWork(); !status.ok()) return status;
  request_ = google::protobuf::Arena::CreateMessage<v1::ExecuteRequest>(&memory_);
  if (absl::Status status = ParseMessage(*request_bytes_, request_); !status.ok()) return status;
  if (absl::Status status = CheckServed(*request_); !status.ok()) return status;
  const SessionRef session = SessionFromProto(request_->session());
  if (absl::Status status = owners_->Check(session, caller_); !status.ok()) return status;
  return caches_->OfSession(session.id);
}

void ExecuteCall::OnBatchDone(const absl::StatusOr<BatchAnswer>& outcome) {
  if (outcome.ok()) *answer_bytes_ = ResponseBytes(*outcome, /*batch_id=*/0);
  memory_.Reset();
  Reactor* reactor = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    batch_.reset();
    outcome_ = outcome.status();
    reactor = reactor_;
  }
  if (reactor != nullptr) reactor->End(outcome.status());
}

std::variant<absl::Status, ExecuteCall::Reactor*> ExecuteCall::OnHandlerDone(
    RpcMetrics::Call& counted, UntakenAnswers::Call& untaken) {
  absl::MutexLock lock(&mutex_);
  if (outcome_.has_value()) return *outcome_;
  reactor_ = new Reactor(shared_from_this(), std::move(counted), std::move(untaken));
  return reactor_;
}

void ExecuteCall::OnCancel() {
  std::shared_ptr<BatchRun> batch;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    batch = batch_;
  }
  if (batch != nullptr) batch->EndWaits(ClientGone());
}

}  // namespace pagoda::server
