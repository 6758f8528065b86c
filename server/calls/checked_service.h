// The one way by which gRPC's requests become messages.
#ifndef PAGODA_SERVER_CALLS_CHECKED_SERVICE_H_
#define PAGODA_SERVER_CALLS_CHECKED_SERVICE_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/impl/serialization_traits.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/callers/admission.h"
#include "server/callers/identity.h"
#include "server/callers/tenant_queues.h"
#include "server/calls/reactors.h"
#include "wire/bytes/message_bytes.h"
#include "wire/errors.h"

namespace pagoda::server {

// A request as gRPC receives it. gRPC would parse a message before any check. The call owns this.
template <class Request>
struct Unparsed {
  mutable grpc::ByteBuffer bytes;  // Until the message is parsed.
  mutable Request message;         // The message of a method that answers with a stream.
};

// The base of the daemon's services. It registers their methods, not the generated base class, so
// there is no method whose request gRPC parses. Before a handler runs, in this order:
//
// 1. Admission admits the caller.
// 2. The bytes are at most what the method's row in kMethods allows.
// 3. The bytes are within wire/bytes/request_bounds.h, and are a message.
// 4. The daemon serves every field (wire/served_fields.h).
//
// Thread-safe after the constructor.
class CheckedService : public grpc::Service {
 protected:
  // The pointers outlive the service. `queues`: where tenants' large requests of unary methods are
  // read. Null: on gRPC's threads, as all others.
  explicit CheckedService(const Admission* admission, TenantQueues* queues = nullptr)
      : admission_(admission), queues_(queues) {}

  // Serve registers a handler. Call it in the constructor, once for each method. Responses live as
  // long as their calls. So does the request of a method that answers with a stream; that of a
  // unary method lives until its handler returns.

  // Answers a unary call at once. The response counts if the status is OK.
  template <class S, class Request, class Response>
  void Serve(const Method& method,
             absl::Status (S::*handler)(const Identity&, const Request&, Response*)) {
    AddUnary<Request, Response>(
        method, [=, this](grpc::ServerUnaryReactor* call, const Identity& caller,
                          const Request& request, Response* response) {
          Answer(call, (static_cast<S*>(this)->*handler)(caller, request, response));
        });
  }

  // Answers a unary call now or later, with Answer.
  template <class S, class Request, class Response>
  void Serve(const Method& method, void (S::*handler)(grpc::ServerUnaryReactor* call,
                                                      const Identity&, const Request&, Response*)) {
    AddUnary<Request, Response>(
        method, [=, this](grpc::ServerUnaryReactor* call, const Identity& caller,
                          const Request& request, Response* response) {
          (static_cast<S*>(this)->*handler)(call, caller, request, response);
        });
  }

  // Answers with a stream.
  template <class S, class Request, class Response>
  void Serve(const Method& method,
             grpc::ServerWriteReactor<Response>* (S::*handler)(grpc::CallbackServerContext*,
                                                               const Identity&, const Request&)) {
    using Reactor = grpc::ServerWriteReactor<Response>;
    Register(method, grpc::internal::RpcMethod::SERVER_STREAMING,
             new grpc::internal::CallbackServerStreamingHandler<Unparsed<Request>, Response>(
                 [=, this](grpc::CallbackServerContext* context,
                           const Unparsed<Request>* request) -> Reactor* {
                   const absl::StatusOr<Identity> caller = Admit(*context, method, request->bytes);
                   absl::Status read = caller.status();
                   if (read.ok()) read = Read(&request->bytes, &request->message);
                   if (!read.ok()) return new RefusedStream<Reactor>(ToGrpcStatus(read));
                   return (static_cast<S*>(this)->*handler)(context, *caller, request->message);
                 }));
  }

  // Handlers of batches get bytes, because a batch is parsed only when the tenant's queue runs it.
  // They make the checks above themselves.
  template <class S>
  void ServeBytes(const Method& method,
                  grpc::ServerUnaryReactor* (S::*handler)(grpc::CallbackServerContext*,
                                                          const grpc::ByteBuffer*,
                                                          grpc::ByteBuffer*)) {
    Add<grpc::ByteBuffer, grpc::ByteBuffer>(
        method, [=, this](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                          grpc::ByteBuffer* response) {
          return (static_cast<S*>(this)->*handler)(context, request, response);
        });
  }
  template <class S>
  void ServeBytes(const Method& method,
                  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* (S::*handler)(
                      grpc::CallbackServerContext*)) {
    Register(method, grpc::internal::RpcMethod::BIDI_STREAMING,
             new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                 [=, this](grpc::CallbackServerContext* context) {
                   return (static_cast<S*>(this)->*handler)(context);
                 }));
  }

  const Admission* admission() const { return admission_; }

 private:
  template <class Request, class Response, class Handler>
  void Add(const Method& method, Handler handler) {
    Register(method, grpc::internal::RpcMethod::NORMAL_RPC,
             new grpc::internal::CallbackUnaryHandler<Request, Response>(std::move(handler)));
  }
  // Takes the handler.
  void Register(const Method& method, grpc::internal::RpcMethod::RpcType type,
                grpc::internal::MethodHandler* handler);

  // `run` answers the call now or later.
  template <class Request, class Response, class Run>
  void AddUnary(const Method& method, Run run) {
    Add<Unparsed<Request>, Response>(
        method, [=, this](grpc::CallbackServerContext* context, const Unparsed<Request>* request,
                          Response* response) {
          grpc::ServerUnaryReactor* const call = context->DefaultReactor();
          const absl::StatusOr<Identity> caller = Admit(*context, method, request->bytes);
          const size_t bytes = request->bytes.Length();
          const auto read_and_run = [=, this] {
            // A call can go on for long after its handler. The message, which can be several times
            // as large as its bytes, does not.
            google::protobuf::Arena memory(MessageArenaOptions());
            auto* const message = google::protobuf::Arena::CreateMessage<Request>(&memory);
            absl::Status read = caller.status();
            if (read.ok() && context->IsCancelled()) read = absl::CancelledError("not wanted");
            if (read.ok()) read = Read(&request->bytes, message);
            read.ok() ? run(call, *caller, *message, response) : Answer(call, read);
          };
          if (!caller.ok() || queues_ == nullptr || caller->tenant == kDefaultTenant ||
              bytes <= kLargeRequestBytes) {
            read_and_run();
          } else if (absl::Status room = queues_->CheckCapacity(caller->tenant); !room.ok()) {
            Answer(call, room);
          } else {
            queues_->RunLater(caller->tenant, bytes, read_and_run);
          }
          return call;
        });
  }
  // Rules 1 and 2.
  absl::StatusOr<Identity> Admit(const grpc::CallbackServerContext& context, const Method& method,
                                 const grpc::ByteBuffer& bytes) const;
  // Rules 3 and 4.
  absl::Status Read(grpc::ByteBuffer* bytes, google::protobuf::Message* message) const;

  const Admission* const admission_;
  TenantQueues* const queues_;
};

}  // namespace pagoda::server

namespace grpc {

// gRPC's own template parses a request here.
template <class Request>
class SerializationTraits<pagoda::server::Unparsed<Request>> {
 public:
  static Status Deserialize(ByteBuffer* bytes, pagoda::server::Unparsed<Request>* request) {
    request->bytes.Swap(bytes);
    return Status::OK;
  }
};

}  // namespace grpc

#endif  // PAGODA_SERVER_CALLS_CHECKED_SERVICE_H_
