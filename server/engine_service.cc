#include "server/engine_service.h"

#include <utility>

#include "pools/error.h"
#include "server/generate_stream.h"
#include "server/reactors.h"
#include "server/served_fields.h"
#include "server/translate.h"

namespace pagoda::server {
namespace {

constexpr Method kGenerate = MethodNamed("/pagoda.v1.EngineService/Generate");
// Requests behind the one that runs. Each holds its prompt in memory.
constexpr size_t kMaxWaiting = 256;

}  // namespace

EngineService::EngineService(Engine* engine, std::string model_name, const ServingState* state,
                             const Admission* admission)
    : engine_(engine),
      model_name_(std::move(model_name)),
      state_(state),
      admission_(admission),
      queue_(kMaxWaiting) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* EngineService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  absl::StatusOr<NamespaceKey> name_space = CheckRequest(*context, *request);
  if (!name_space.ok()) {
    return new RefusedStream<grpc::ServerWriteReactor<v1::GenerateResponse>>(
        ToGrpcStatus(name_space.status()));
  }
  return GenerateStream::Start(engine_, &queue_, *request, *std::move(name_space));
}

absl::StatusOr<NamespaceKey> EngineService::CheckRequest(const grpc::ServerContextBase& context,
                                                         const v1::GenerateRequest& request) const {
  const absl::StatusOr<Identity> caller = admission_->Admit(context, kGenerate);
  if (!caller.ok()) return caller.status();
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (absl::Status status = CheckServed(request); !status.ok()) return status;
  if (engine_ == nullptr) {
    return MakeError(Reason::kNoEngine,
                     "the daemon runs without a model; start it with engine.model_dir");
  }
  return admission_->tenants().Confine(caller->tenant, NamespaceFromProto(request.namespace_()));
}

EngineStats EngineService::Stats() const {
  EngineStats stats = engine_->Stats();
  stats.waiting_requests += queue_.waiting();
  return stats;
}

}  // namespace pagoda::server
