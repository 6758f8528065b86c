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

// One Session stream, used in lockstep. The asynchronous API on a queue of its own, because a
// blocking read has no deadline but the whole stream's; still one thread, and one operation under
// way at a time. After an error it is of no use any more. Thread-compatible.
class SessionStream {
 public:
  explicit SessionStream(v1::CacheService::Stub& stub);
  // Cancels the call where it is under way.
  ~SessionStream();
  SessionStream(const SessionStream&) = delete;
  SessionStream& operator=(const SessionStream&) = delete;

  // Returns when the call has a connection. Nothing of a batch has left this process before.
  absl::Status Start(absl::Time deadline);
  // Errors: DEADLINE_EXCEEDED, without a reason; those with which the stream ended.
  absl::StatusOr<v1::SessionResponse> Call(const v1::SessionRequest& request, absl::Time deadline);

 private:
  // Waits for the operation under way.
  absl::Status Await(absl::Time deadline);
  // A failed read or write says only that the stream is over; its status says why.
  absl::Status WhyItEnded(absl::Time deadline);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
  // A read that the deadline leaves under way still writes to its message.
  v1::SessionResponse response_;
  grpc::Status final_status_;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_CPP_SESSION_STREAM_H_
