// One call of EngineService.Generate: tokens out, as they come.
#ifndef PAGODA_SERVER_GENERATE_GENERATE_STREAM_H_
#define PAGODA_SERVER_GENERATE_GENERATE_STREAM_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/engine.h"
#include "grpcpp/support/server_callback.h"
#include "pagoda/v1/engine.pb.h"
#include "server/callers/identity.h"
#include "server/generate/generate_prompt.h"

namespace pagoda::server {

// The engine hands each token over on its own thread; what comes while a write is outstanding goes
// into the next message. The tokens of one request are bounded by the model, so they need no
// further limit. Thread-safe; shared by its call and the engine.
class GenerateStream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  // One of Submit and Refuse has to follow, on any thread; before that the call does not end.
  // `reuse`: whether the report has the numbers of reused tokens.
  // `check_caller` fails once the caller's token has been taken back, which ends the call with that
  // error. It is asked with Cancelled, and what it refers to outlives the call.
  static GenerateStream* Open(const v1::GenerateRequest& request, ReuseNumbers reuse,
                              std::function<absl::Status()> check_caller);
  // Submits the request of the tenant, with its prompt, which is in `name_space`; the engine and
  // the prompt's tokenizer outlive the call. A request that the engine refuses ends the call.
  void Submit(Engine* engine, const v1::GenerateRequest& request, GeneratePrompt prompt,
              NamespaceKey name_space, std::string tenant);
  void Refuse(const absl::Status& status) { End(status); }

  // The client has left, its deadline has passed, or its token has been taken back. Asked by the
  // engine too, once a step.
  bool Cancelled() ABSL_LOCKS_EXCLUDED(mutex_);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateStream(ReuseNumbers reuse, std::function<absl::Status()> check_caller)
      : reuse_(reuse), check_caller_(std::move(check_caller)) {}

  // Returns whether anybody still wants tokens.
  bool Add(const GeneratedToken& token) ABSL_LOCKS_EXCLUDED(mutex_);
  // No token comes after this.
  void End(const absl::StatusOr<GenerateReport>& report) ABSL_LOCKS_EXCLUDED(mutex_);
  // If no write is outstanding: starts one with what there is, or finishes the call.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);

  std::shared_ptr<GenerateStream> self_;  // The call's share; given up in OnDone.

  const ReuseNumbers reuse_;
  const std::function<absl::Status()> check_caller_;
  const SteadyTime arrival_ = SteadyNow();  // Of the call.
  bool detailed_ = false;                   // Whether GenerateResponse::generated is wanted.
  // The first sample's text, where it is wanted. Of the engine's thread.
  std::unique_ptr<StreamDecoder> decoder_;

  absl::Mutex mutex_;  // Taken before gRPC's own locks.
  v1::GenerateResponse pending_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse response_ ABSL_GUARDED_BY(mutex_);  // gRPC's while writing_.
  absl::Status status_ ABSL_GUARDED_BY(mutex_);            // What the call ends with.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status revoked_ ABSL_GUARDED_BY(mutex_);   // The error of check_caller_, with cancelled_.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // End has been called.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish has been called.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_GENERATE_GENERATE_STREAM_H_
