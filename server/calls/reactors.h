// The plain endings of a call in gRPC's callback API.
#ifndef PAGODA_SERVER_CALLS_REACTORS_H_
#define PAGODA_SERVER_CALLS_REACTORS_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/callers/untaken_answers.h"
#include "wire/errors.h"

namespace pagoda::server {

// Answers a unary call. If `status` is OK, the response must be filled in already.
inline void Answer(grpc::ServerUnaryReactor* call, const absl::Status& status) {
  call->Finish(ToGrpcStatus(status));
}

// Answers a unary call that no interceptor sees, and reports it to UntakenAnswers. Deletes itself.
class ObservedAnswer final : public grpc::ServerUnaryReactor {
 public:
  ObservedAnswer(UntakenAnswers::Call call, const grpc::Status& status) : call_(std::move(call)) {
    call_.SetAnswered();
    Finish(status);
  }
  void OnDone() override { delete this; }
  // gRPC's default reactor returns true too: its end takes no thread of its own.
  bool InternalInlineable() override { return true; }

 private:
  UntakenAnswers::Call call_;
};

// Ends a streaming call before it has begun. `Reactor` is grpc::ServerWriteReactor<Response> or
// grpc::ServerBidiReactor<Request, Response>. Deletes itself.
template <class Reactor>
class RefusedStream final : public Reactor {
 public:
  // `call`: of a method that no interceptor sees.
  explicit RefusedStream(const grpc::Status& status,
                         std::optional<UntakenAnswers::Call> call = std::nullopt)
      : call_(std::move(call)) {
    if (call_.has_value()) call_->SetAnswered();
    this->Finish(status);
  }
  void OnDone() override { delete this; }

 private:
  std::optional<UntakenAnswers::Call> call_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_CALLS_REACTORS_H_
