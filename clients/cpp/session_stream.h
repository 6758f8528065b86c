#ifndef PAGODA_CLIENTS_CPP_SESSION_STREAM_H_
#define PAGODA_CLIENTS_CPP_SESSION_STREAM_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/support/async_stream.h"
#include "pagoda/v1/cache.grpc.pb.h"

namespace pagoda {

// One Session stream, used in lockstep: one thread, and one operation under way at a time. It uses
// the asynchronous API with its own queue, because a blocking read has no deadline but that of the
// whole stream. After an error the stream cannot be used any more. Thread-compatible.
class SessionStream {
 public:
  explicit SessionStream(v1::CacheService::Stub& stub);
  // Cancels the call if it is under way.
  ~SessionStream();
  SessionStream(const SessionStream&) = delete;
  SessionStream& operator=(const SessionStream&) = delete;

  // Returns when the call has a connection. No part of a batch has left this process by then.
  absl::Status Start(absl::Time deadline);
  // Sends a batch and waits for its answer. Errors: DEADLINE_EXCEEDED, without a reason; the error
  // that ended the stream.
  absl::StatusOr<v1::SessionResponse> Call(const v1::SessionRequest& request, absl::Time deadline);

 private:
  // Waits for the operation under way.
  absl::Status Await(absl::Time deadline);
  // The error that ended the stream. A failed read or write does not carry it.
  absl::Status WhyItEnded(absl::Time deadline);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  // A member, because a read that the deadline left under way still writes to it.
  v1::SessionResponse response_;
  grpc::Status final_status_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_SESSION_STREAM_H_
