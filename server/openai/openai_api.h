// The engine for clients of OpenAI's API, on the daemon's HTTP port.
#ifndef PAGODA_SERVER_OPENAI_OPENAI_API_H_
#define PAGODA_SERVER_OPENAI_OPENAI_API_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "engine/text/model_text.h"
#include "manager/tenants.h"
#include "server/callers/tenant_queues.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/openai/api_answer.h"
#include "server/openai/api_request.h"
#include "server/openai/generation.h"
#include "server/rpc/stream_slots.h"
#include "server/serving_state.h"

namespace pagoda::server {

// GET /v1/models, POST /v1/completions and /v1/chat/completions; README.md has the fields.
// Thread-safe.
//
// 1. A generation keeps a thread of HTTP for as long as it runs: at most max_generations at once,
// of which each tenant has its part; one more is refused before its body is read.
// 2. An answer that is generated and still being read keeps a thread too: of these there are as
// many again, shared out likewise. Where the tenant has no more of them, the answer keeps its place
// among the generations, so slow readers never take the threads that answer everything else.
// 3. Who calls is asked as at the other doors, and whether it may (HttpFence): a tenant's prompts
// and answers are cached as its own. A token that is taken back ends its generations.
// 4. A client that goes away cancels its generation.
// 5. Texts are tokenised in their tenant's turn, on the few threads that do it for gRPC too.
class OpenAiApi {
 public:
  struct Options {
    uint32_t max_generations = 16;
    size_t max_body_bytes = 0;
  };
  // `engine` is null, and `model_name` empty, in a daemon without a model. All outlive it, and
  // `text` the engine.
  OpenAiApi(Options options, Engine* engine, std::string model_name, const ModelText* text,
            const ServingState* state, const HttpFence* fence, const TenantTable* tenants,
            TenantQueues* tokenizing);

  // The routes use this object.
  void AddRoutes(HttpServer::Routes* routes, HttpServer::Posts* posts);

  // Of completions and chats.
  struct Counts {
    uint64_t running = 0;
    uint64_t answered = 0;  // Whole, or to the end of their stream.
    uint64_t refused = 0;   // Before anything was generated, or its client left before that.
    uint64_t failed = 0;    // Behind the first token: the client left, or an error ended them.
  };
  Counts counts() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits until no generation runs and all answers are written, `end` at the latest. Then those
  // that run are cut, and have a moment to say so; what is still being written ends with the HTTP
  // server. REQUIRES: the state refuses new ones, or nobody asks any more.
  void Drain(absl::Time end) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // A generation and its answer. Destroyed when the answer has been written, for which a drain
  // waits.
  class Place {
   public:
    Place(OpenAiApi* api, TenantId tenant, StreamSlots::Slot slot);
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    // The answer is generated. Makes room for another generation, before the client has all of the
    // answer and asks again; not where the tenant has as many answers that are being read as may
    // be.
    void GiveBackSlot();

   private:
    OpenAiApi* const api_;
    const TenantId tenant_;
    std::optional<StreamSlots::Slot> slot_;     // Of a generation.
    std::optional<StreamSlots::Slot> writing_;  // Of an answer that is being read.

    void EndRun();
  };
  struct Asked {
    Identity caller;
    ApiRequest request;
    std::vector<GenerateRequest> requests;  // One a prompt.
  };

  HttpResponse Models(const HttpRequest& request) const;
  void Post(ApiRequest::Kind kind, const HttpRequest& request, HttpExchange& exchange);
  absl::StatusOr<std::unique_ptr<Place>> TakePlace(const Identity& caller)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Asked> Read(ApiRequest::Kind kind, const Identity& caller, HttpExchange& exchange);
  // In the tenant's turn. Errors: TOO_MANY_CALLS where too much of the tenant's waits for it.
  absl::StatusOr<std::vector<std::vector<TokenId>>> PromptsQueued(const ApiRequest& request,
                                                                  const Identity& caller,
                                                                  size_t bytes) const;
  absl::StatusOr<std::vector<std::vector<TokenId>>> PromptsOf(const ApiRequest& request) const;
  absl::StatusOr<GenerateRequest> ToEngine(const ApiRequest& request, const Identity& caller) const;

  void Refuse(const HttpResponse& response, HttpExchange& exchange) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(uint64_t Counts::*outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answer(const Asked& asked, std::unique_ptr<Place> place, HttpExchange& exchange);
  void AnswerWhole(const Asked& asked, Generation& generation, std::unique_ptr<Place> place,
                   HttpExchange& exchange);
  void AnswerInPieces(const Asked& asked, Generation& generation, std::unique_ptr<Place> place,
                      HttpExchange& exchange);
  // The next round; an error of the generation's, or CANCELLED where the client has gone, DRAINING
  // where it is cut, UNAUTHENTICATED where the caller's token has been taken back.
  absl::StatusOr<Generation::Round> Next(const Asked& asked, Generation& generation,
                                         HttpExchange& exchange) const;
  ApiAnswer NewAnswer(const Asked& asked) const;

  const Options options_;
  Engine* const engine_;
  const std::string model_name_;
  const ModelText* const text_;
  const ServingState* const state_;
  const HttpFence* const fence_;
  const TenantTable* const tenants_;
  TenantQueues* const tokenizing_;
  const absl::Time start_time_;
  StreamSlots slots_;
  StreamSlots writing_slots_;
  std::atomic<bool> cut_ = false;
  mutable absl::Mutex mutex_;
  uint32_t places_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_OPENAI_OPENAI_API_H_
