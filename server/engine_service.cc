#include "server/engine_service.h"

#include <utility>

#include "pools/error.h"
#include "server/generate_stream.h"
#include "server/reactors.h"
#include "server/served_fields.h"

namespace pagoda::server {
namespace {

// Requests behind the one that runs. Each holds its prompt in memory.
constexpr size_t kMaxWaiting = 256;

}  // namespace

EngineService::EngineService(Engine* engine, std::string model_name, const ServingState* state)
    : engine_(engine), model_name_(std::move(model_name)), state_(state), queue_(kMaxWaiting) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* EngineService::Generate(
    grpc::CallbackServerContext*, const v1::GenerateRequest* request) {
  if (const absl::Status status = CheckRequest(*request); !status.ok()) {
    return new RefusedStream<grpc::ServerWriteReactor<v1::GenerateResponse>>(ToGrpcStatus(status));
  }
  return GenerateStream::Start(engine_, &queue_, *request);
}

absl::Status EngineService::CheckRequest(const v1::GenerateRequest& request) const {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (absl::Status status = CheckServed(request); !status.ok()) return status;
  if (engine_ != nullptr) return absl::OkStatus();
  return MakeError(Reason::kNoEngine,
                   "the daemon runs without a model; start it with engine.model_dir");
}

EngineStats EngineService::Stats() const {
  EngineStats stats = engine_->Stats();
  stats.waiting_requests += queue_.waiting();
  return stats;
}

}  // namespace pagoda::server
