#include "engine/serve/generate/engine_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/serve/generate/generate_prompt.h"
#include "engine/serve/generate/structured_output.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "manager/accounts/tenants.h"
#include "server/calls/reactors.h"
#include "wire/vocabulary.h"

namespace pagoda::server {
EngineService::EngineService(Generator* engine, const ModelText* text, std::string model_name,
                             std::string cache_name, const ServingState* state,
                             const Admission* admission,
                             std::function<absl::Status(const std::string&)> check_source)
    : CheckedService(admission),
      engine_(engine),
      text_(text),
      model_name_(std::move(model_name)),
      cache_name_(std::move(cache_name)),
      state_(state),
      check_source_(std::move(check_source)) {
  Serve(MethodNamed("/pagoda.v1.EngineService/Generate"), &EngineService::Generate);
}
EngineService::~EngineService() = default;

grpc::ServerWriteReactor<v1::GenerateResponse>* EngineService::Generate(
    grpc::CallbackServerContext* context, const Identity& identity,
    const v1::GenerateRequest& request) {
  absl::StatusOr<Caller> caller = CheckRequest(identity, request, BearerToken(*context));
  if (!caller.ok()) {
    return new RefusedStream<grpc::ServerWriteReactor<v1::GenerateResponse>>(
        ToGrpcStatus(caller.status()));
  }
  GenerateStream* const stream =
      GenerateStream::Open(request, ReuseNumbersFor(admission()->tenants(), caller->identity),
                           [admission = admission(), identity = caller->identity] {
                             return admission->CheckStillKnown(identity);
                           });
  if (request.prompt_text().empty() && request.messages().empty() &&
      !request.has_structured_output()) {
    Submit(request, *std::move(caller), stream);
    return stream;
  }
  // A long text takes milliseconds, and a grammar can take seconds: too long for a gRPC thread. The
  // request and its context exist as long as the call, and the call cannot end before Submit or
  // Refuse.
  const TenantId tenant = caller->identity.tenant;
  TenantQueues& queue =
      MustCompile(request, *text_) ? prompt_queues_.grammars : prompt_queues_.texts;
  if (absl::Status status = queue.CheckCapacity(tenant); !status.ok()) {
    stream->Refuse(status);
    return stream;
  }
  queue.RunLater(tenant, request.ByteSizeLong(),
                 [this, context, &request, caller = *std::move(caller), stream]() mutable {
                   // Skips the work if the client has left meanwhile.
                   absl::Status wanted =
                       CheckInTime(absl::FromChrono(context->deadline()), absl::Now());
                   if (stream->Cancelled()) wanted = absl::CancelledError("the client is gone");
                   if (!wanted.ok()) return stream->Refuse(wanted);
                   Submit(request, std::move(caller), stream);
                 });
  return stream;
}

void EngineService::Submit(const v1::GenerateRequest& request, Caller caller,
                           GenerateStream* stream) const {
  absl::StatusOr<GeneratePrompt> prompt =
      ReadPrompt(request, *text_, engine_->model(), absl::Now());
  if (!prompt.ok()) return stream->Refuse(prompt.status());
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> grammar =
      ReadStructuredOutput(request, *text_);
  if (!grammar.ok()) return stream->Refuse(grammar.status());
  prompt->grammar = *std::move(grammar);
  stream->Submit(engine_, request, *std::move(prompt), std::move(caller.name_space),
                 std::move(caller.tenant), std::move(caller.token));
}

absl::StatusOr<EngineService::Caller> EngineService::CheckRequest(
    const Identity& identity, const v1::GenerateRequest& request, std::string token) const {
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) return status;
  if (!request.cache().empty() && request.cache() != cache_name_) {
    return MakeError(Reason::kNoEngine,
                     absl::StrCat("the daemon's engine runs over the cache '", cache_name_,
                                  "', not '", request.cache(), "'"));
  }
  const TenantTable& tenants = admission()->tenants();
  if (absl::Status status = CheckPriority(tenants, identity, request.priority()); !status.ok()) {
    return status;
  }
  if (absl::Status status = check_source_(request.source().address()); !status.ok()) {
    return status;
  }
  absl::StatusOr<NamespaceKey> name_space =
      tenants.Confine(identity.tenant, NamespaceFromProto(request.namespace_()));
  if (!name_space.ok()) return name_space.status();
  return Caller{*std::move(name_space), tenants[identity.tenant].name, identity, std::move(token)};
}

}  // namespace pagoda::server
