#ifndef PAGODA_ENGINE_SERVE_GENERATE_ENGINE_SERVICE_H_
#define PAGODA_ENGINE_SERVE_GENERATE_ENGINE_SERVICE_H_

#include <functional>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "engine/serve/generate/generate_stream.h"
#include "engine/serve/generate/prompt_queues.h"
#include "manager/accounts/tenants.h"
#include "pagoda/v1/engine.pb.h"
#include "server/callers/admission.h"
#include "server/calls/checked_service.h"
#include "server/supervision/serving_state.h"

namespace pagoda::server {

// pagoda.v1.EngineService. Blocks that a tenant's generations cache belong to the tenant.
// Thread-safe.
class EngineService final : public CheckedService {
 public:
  // `cache_name`: the cache that the engine uses. `check_source`: whether prompts may be fetched
  // from this other daemon. The pointers outlive the service.
  EngineService(Generator* engine, const ModelText* text, std::string model_name,
                std::string cache_name, const ServingState* state, const Admission* admission,
                std::function<absl::Status(const std::string& address)> check_source);
  ~EngineService() override;

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const Identity& identity,
                                                           const v1::GenerateRequest& request);

  const std::string& model_name() const { return model_name_; }
  // The OpenAI API uses them, too.
  PromptQueues& prompt_queues() { return prompt_queues_; }

 private:
  struct Caller {
    NamespaceKey name_space;  // The namespace of the prompt.
    std::string tenant;
    Identity identity;
    std::string token;  // The one that it showed, if it showed one.
  };
  void Submit(const v1::GenerateRequest& request, Caller caller, GenerateStream* stream) const;
  absl::StatusOr<Caller> CheckRequest(const Identity& identity, const v1::GenerateRequest& request,
                                      std::string token) const;

  Generator* const engine_;
  const ModelText* const text_;
  const std::string model_name_;
  const std::string cache_name_;
  const ServingState* const state_;
  const std::function<absl::Status(const std::string& address)> check_source_;
  PromptQueues prompt_queues_;  // Last: its threads use the other members.
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_GENERATE_ENGINE_SERVICE_H_
