// The two plain endings of a call in gRPC's callback API.
#ifndef PAGODA_SERVER_RPC_REACTORS_H_
#define PAGODA_SERVER_RPC_REACTORS_H_

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "wire/errors.h"

namespace pagoda::server {

// Answers a unary call. If `status` is OK, the response must be filled in already.
inline grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                        const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// Ends a streaming call before it has begun. `Reactor` is grpc::ServerWriteReactor<Response> or
// grpc::ServerBidiReactor<Request, Response>. Deletes itself.
template <class Reactor>
class RefusedStream final : public Reactor {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_REACTORS_H_
