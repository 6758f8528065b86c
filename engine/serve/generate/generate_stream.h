// One call of EngineService.Generate, which streams tokens to the client.
#ifndef PAGODA_ENGINE_SERVE_GENERATE_GENERATE_STREAM_H_
#define PAGODA_ENGINE_SERVE_GENERATE_GENERATE_STREAM_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/generator.h"
#include "engine/serve/generate/generate_prompt.h"
#include "grpcpp/support/server_callback.h"
#include "pagoda/v1/engine.pb.h"
#include "server/callers/identity.h"

namespace pagoda::server {

// The engine adds each token on its own thread. Tokens that arrive while a write is outstanding go
// into the next message. They need no further limit, because the model bounds the tokens of a
// request. Thread-safe. The call and the engine's callbacks share the stream.
class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  // Submit or Refuse must follow, on any thread; the call does not end before.
  // `reuse`: whether the report has the numbers of reused tokens.
  // `check_caller`: fails when the caller's token has been revoked; its error then ends the call.
  // Cancelled calls it. The objects that it refers to outlive the call.
  static GenerateStream* Open(const v1::GenerateRequest& request, ReuseNumbers reuse,
                              std::function<absl::Status()> check_caller);
  // Submits the tenant's request with its prompt in `name_space`. `bearer`: see
  // GenerateRequest::token. The engine and the prompt's tokenizer outlive the call. If the engine
  // refuses the request, the call ends with its error.
  void Submit(Generator* engine, const v1::GenerateRequest& request, GeneratePrompt prompt,
              NamespaceKey name_space, std::string tenant, std::string bearer);
  void Refuse(const absl::Status& status) { End(status); }

  // Whether the client has left, its deadline has passed, or its token has been revoked. The engine
  // calls it once a step.
  bool Cancelled() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateStream(ReuseNumbers reuse, std::function<absl::Status()> check_caller)
      : reuse_(reuse), check_caller_(std::move(check_caller)) {}

  // Returns whether the client still wants tokens.
  bool Add(const GeneratedToken& token) ABSL_LOCKS_EXCLUDED(mutex_);
  // No token follows.
  void End(const absl::StatusOr<GenerateReport>& report) ABSL_LOCKS_EXCLUDED(mutex_);
  // If no write is outstanding: writes the pending tokens, or finishes the call.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);

  std::shared_ptr<GenerateStream> self_;  // The call's reference; released in OnDone.

  const ReuseNumbers reuse_;
  const std::function<absl::Status()> check_caller_;
  const SteadyTime arrival_ = SteadyNow();  // When the call arrived.
  bool detailed_ = false;                   // Whether GenerateResponse::generated is wanted.
  // Decodes the first sample, if the client wants text. Used by the engine's thread only.
  std::unique_ptr<StreamDecoder> decoder_;

  absl::Mutex mutex_;  // Taken before gRPC's own locks.
  v1::GenerateResponse pending_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse response_ ABSL_GUARDED_BY(mutex_);  // gRPC uses it while writing_.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);            // The status that ends the call.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status revoked_ ABSL_GUARDED_BY(mutex_);   // The error of check_caller_, with cancelled_.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // End has been called.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish has been called.
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_GENERATE_GENERATE_STREAM_H_
