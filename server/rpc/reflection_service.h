// gRPC's reflection: clients ask which services there are, and for their descriptors.
#ifndef PAGODA_SERVER_RPC_REFLECTION_SERVICE_H_
#define PAGODA_SERVER_RPC_REFLECTION_SERVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/callers/admission.h"
#include "server/callers/identity.h"
#include "server/calls/stream_set.h"
#include "server/supervision/serving_state.h"

namespace pagoda::server {

class ReflectionStream;

// grpc.reflection.v1 and v1alpha, over the descriptors of this program. gRPC has a service of its
// own for that. It takes a thread for each open stream and asks for no credentials. Here a stream
// takes no thread, has one read or one write outstanding, and is admitted and counted like every
// other stream. Thread-safe.
class ReflectionService {
 public:
  // The bytes of a request: names of files and types are shorter.
  static constexpr size_t kMaxRequestBytes = 4096;

  // `services`: the full names of the other services that are served. All pointers outlive this.
  ReflectionService(std::vector<std::string> services, const ServingState* state,
                    const Admission* admission);
  ~ReflectionService();

  // The services to register, one for each version. They live as long as this object.
  std::vector<grpc::Service*> services() const;

  // Ends every open stream. Call it when the state is draining.
  void EndStreamsForDrain();
  // Ends the streams whose callers' tokens were revoked.
  void EndRevokedStreams();

  // The answer to one request; an error_response if there is none.
  grpc::reflection::v1::ServerReflectionResponse Answer(
      const grpc::reflection::v1::ServerReflectionRequest& request) const;

 private:
  template <class Generated>
  class Version;

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(
      grpc::CallbackServerContext* context, const Method& method);
  absl::StatusOr<ReflectionStream*> Start(grpc::CallbackServerContext* context,
                                          const Method& method);

  std::vector<std::string> names_;
  const ServingState* const state_;
  const Admission* const admission_;
  StreamSet<ReflectionStream> streams_;
  const std::unique_ptr<grpc::Service> v1_, v1alpha_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_REFLECTION_SERVICE_H_
