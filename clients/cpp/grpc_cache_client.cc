#include "clients/cpp/grpc_cache_client.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "clients/cpp/channel.h"
#include "clients/cpp/errors.h"
#include "clients/cpp/translate.h"
#include "clients/cpp/translate_operations.h"
#include "clients/cpp/translate_results.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"
#include "pagoda/v1/cache.grpc.pb.h"

namespace pagoda {
namespace {

// One Session stream, used in lockstep. The asynchronous API on a queue of its own, because a
// blocking read has no deadline but the whole stream's; still one thread, and one operation under
// way at a time.
class SessionStream {
 public:
  explicit SessionStream(v1::CacheService::Stub& stub)
      : stream_(stub.PrepareAsyncSession(&context_, &queue_)) {}

  // The queue may be destroyed only when nothing is under way in it.
  ~SessionStream() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  absl::Status Start(absl::Time deadline) {
    stream_->StartCall(this);
    return Await(deadline);
  }

  absl::StatusOr<v1::SessionResponse> Call(const v1::SessionRequest& request, absl::Time deadline) {
    stream_->Write(request, this);
    if (absl::Status status = Await(deadline); !status.ok()) return status;
    v1::SessionResponse response;
    // A read that the deadline leaves under way still writes to its message, so that message is a
    // member.
    stream_->Read(&response_, this);
    if (absl::Status status = Await(deadline); !status.ok()) return status;
    response.Swap(&response_);
    if (response.batch_id() != request.batch_id()) {
      return absl::InternalError(absl::StrCat("asked batch ", request.batch_id(),
                                              ", the daemon answered ", response.batch_id()));
    }
    return response;
  }

 private:
  // Waits for the operation under way.
  absl::Status Await(absl::Time deadline) {
    void* tag = nullptr;
    bool ok = false;
    switch (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(deadline))) {
      case grpc::CompletionQueue::GOT_EVENT:
        return ok ? absl::OkStatus() : WhyItEnded(deadline);
      case grpc::CompletionQueue::TIMEOUT:
        return absl::DeadlineExceededError("the daemon did not answer the batch in time");
      case grpc::CompletionQueue::SHUTDOWN:
        break;
    }
    return absl::InternalError("the session stream's queue was shut down");
  }

  // A failed read or write says only that the stream is over; its status says why.
  absl::Status WhyItEnded(absl::Time deadline) {
    stream_->Finish(&final_status_, this);
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(deadline)) !=
        grpc::CompletionQueue::GOT_EVENT) {
      return absl::DeadlineExceededError(
          "the session stream broke, and the daemon did not say why");
    }
    if (final_status_.ok()) return absl::UnavailableError("the daemon ended the session stream");
    return StatusFromGrpc(final_status_);
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  v1::SessionResponse response_;
  grpc::Status final_status_;
};

// One result an operation, each of the operation's kind: callers take results apart without
// looking.
absl::Status CheckShape(absl::Span<const Operation> operations, const BatchResult& batch) {
  if (batch.results.size() != operations.size()) {
    return absl::InternalError(absl::StrCat("the daemon answered ", operations.size(),
                                            " operations with ", batch.results.size(), " results"));
  }
  for (size_t i = 0; i < operations.size(); ++i) {
    if (batch.results[i].ok() && batch.results[i]->index() != operations[i].index()) {
      return absl::InternalError(
          absl::StrCat("the daemon answered operation ", i, " with another one's result"));
    }
  }
  return absl::OkStatus();
}

class GrpcCacheClient final : public CacheClient {
 public:
  GrpcCacheClient(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout)
      : stub_(v1::CacheService::NewStub(std::move(channel))), timeout_(timeout) {}

  // An error here is of no use to anyone: the lease ends the session where this call could not.
  ~GrpcCacheClient() override {
    stream_.reset();
    if (session_.session_id() == 0) return;
    v1::CloseSessionRequest request;
    *request.mutable_session() = session_;
    v1::CloseSessionResponse response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
    static_cast<void>(stub_->CloseSession(&context, request, &response));
  }

  absl::Status Open(const GrpcCacheClientOptions& options) {
    v1::OpenSessionRequest request;
    request.set_client_name(options.client_name);
    request.set_lease_ms(absl::ToInt64Milliseconds(options.lease));
    v1::OpenSessionResponse response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
    const grpc::Status status = stub_->OpenSession(&context, request, &response);
    if (!status.ok()) return StatusFromGrpc(status);
    session_ = response.session();
    info_ = CacheInfoFromProto(response.cache());
    return absl::OkStatus();
  }

  const CacheInfo& info() const override { return info_; }

  absl::StatusOr<BatchResult> Execute(absl::Span<const Operation> operations,
                                      StepRange steps) override {
    const absl::Time deadline = absl::Now() + timeout_;
    absl::StatusOr<v1::SessionResponse> response = Call(operations, steps, deadline);
    if (!response.ok()) {
      stream_.reset();
      return response.status();
    }
    BatchResult result = BatchResultFromProto(response->result());
    if (absl::Status status = CheckShape(operations, result); !status.ok()) return status;
    return result;
  }

 private:
  absl::StatusOr<v1::SessionResponse> Call(absl::Span<const Operation> operations, StepRange steps,
                                           absl::Time deadline) {
    v1::SessionRequest request;
    if (stream_ == nullptr) {
      stream_ = std::make_unique<SessionStream>(*stub_);
      if (absl::Status status = stream_->Start(deadline); !status.ok()) return status;
      *request.mutable_session() = session_;
    }
    *request.mutable_batch() = BatchToProto(operations, steps);
    request.set_batch_id(++last_batch_id_);
    return stream_->Call(request, deadline);
  }

  const std::unique_ptr<v1::CacheService::Stub> stub_;
  const absl::Duration timeout_;
  v1::SessionRef session_;
  CacheInfo info_;
  std::unique_ptr<SessionStream> stream_;  // Null before the first batch and after a broken one.
  uint64_t last_batch_id_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CacheClient>> OpenGrpcCacheClient(GrpcCacheClientOptions options) {
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      Connect(options.endpoint, options.timeout, options.credentials);
  if (!channel.ok()) return channel.status();
  auto client = std::make_unique<GrpcCacheClient>(*std::move(channel), options.timeout);
  if (absl::Status status = client->Open(options); !status.ok()) return status;
  return client;
}

}  // namespace pagoda
