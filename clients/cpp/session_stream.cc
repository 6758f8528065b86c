#include "clients/cpp/session_stream.h"

#include "wire/errors.h"

namespace pagoda {

SessionStream::SessionStream(v1::CacheService::Stub& stub)
    : stream_(stub.PrepareAsyncSession(&context_, &queue_)) {}

// The queue must be empty and shut down before it is destroyed.
SessionStream::~SessionStream() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status SessionStream::Start(absl::Time deadline) {
  stream_->StartCall(this);
  return Await(deadline);
}

absl::StatusOr<v1::SessionResponse> SessionStream::Call(const v1::SessionRequest& request,
                                                        absl::Time deadline) {
  stream_->Write(request, this);
  if (absl::Status status = Await(deadline); !status.ok()) return status;
  v1::SessionResponse response;
  stream_->Read(&response_, this);
  if (absl::Status status = Await(deadline); !status.ok()) return status;
  response.Swap(&response_);
  return response;
}

absl::Status SessionStream::Await(absl::Time deadline) {
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

absl::Status SessionStream::WhyItEnded(absl::Time deadline) {
  stream_->Finish(&final_status_, this);
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(deadline)) !=
      grpc::CompletionQueue::GOT_EVENT) {
    return absl::DeadlineExceededError("the session stream broke, and the daemon gave no reason");
  }
  if (final_status_.ok()) return absl::UnavailableError("the daemon ended the session stream");
  return StatusFromGrpc(final_status_);
}

}  // namespace pagoda
