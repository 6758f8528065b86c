// Serves the engine to clients of OpenAI's API, on the daemon's HTTP port.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_OPENAI_API_H_
#define PAGODA_ENGINE_SERVE_OPENAI_OPENAI_API_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/generator.h"
#include "engine/serve/generate/prompt_queues.h"
#include "engine/serve/openai/api_answer.h"
#include "engine/serve/openai/api_request.h"
#include "engine/serve/prompt/answer_output.h"
#include "engine/text/model_text.h"
#include "manager/accounts/tenants.h"
#include "server/callers/stream_slots.h"
#include "server/http/body_memory.h"
#include "server/http/http_fence.h"
#include "server/http/http_server.h"
#include "server/supervision/serving_state.h"

namespace pagoda::server {

// GET /v1/models, POST /v1/completions and /v1/chat/completions; engine/serve/OPENAI.md lists the
// fields. Thread-safe.
//
//   1. A request has a place from its head on, and occupies an HTTP thread from its last byte until
//      its generation ends. There are max_generations places, and each tenant has a share of them.
//      One more request is refused before its body is read.
//   2. A generated answer occupies a thread until the client has read it. There are max_generations
//      such places for answers too, shared in the same way. If the tenant has none left, the answer
//      keeps its place among the generations. Slow readers therefore never take the threads for
//      other requests.
//   3. HttpFence identifies the caller and checks its rights, as for gRPC. The prompts and answers
//      of a tenant are cached as that tenant's. Revoking a token ends its generations.
//   4. If the client disconnects, its generation is cancelled.
//   5. Large bodies are parsed, texts tokenised and grammars compiled through the per-tenant
//   queues,
//      on the few threads that also work for gRPC.
//   6. The bytes of all bodies, and of the values that are parsed from them, are bounded and shared
//      out among the tenants (BodyMemory). Parsing ends early if the client leaves, if it takes
//      long, or if a drain cuts it.
class OpenAiApi {
 public:
  struct Options {
    uint32_t max_generations = 16;
    size_t max_body_bytes = 0;
  };
  // All arguments must outlive this object, and `text` must outlive the engine.
  OpenAiApi(Options options, Generator* engine, std::string model_name, const ModelText* text,
            const ServingState* state, const HttpFence* fence, const TenantTable* tenants,
            PromptQueues* prompt_queues);

  // The routes use this object, which must outlive them.
  void AddRoutes(HttpServer::Routes* routes, HttpServer::Posts* posts);

  // Totals of completions and chats.
  struct Counts {
    uint64_t running = 0;
    uint64_t answered = 0;  // Completely, or to the end of the stream.
    uint64_t refused = 0;   // By an error, or because the client left, before the first token.
    uint64_t failed = 0;    // By an error, or because the client left, after the first token.
  };
  Counts counts() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Gives the memory of large requests back to the system; see BodyMemory::Trim.
  void ReturnMemory(absl::Time now) { memory_.Trim(now); }

  // Waits until no generation runs and all answers are written, at the latest until `end`. Then
  // cuts the running generations and gives them a moment to send an error. Answers still being
  // written end with the HTTP server. REQUIRES: the state refuses new generations, or no requests
  // arrive any more.
  void Drain(absl::Time end) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // One generation and its answer. Destroyed when the answer has been written. A drain waits for
  // it.
  class Place {
   public:
    Place(OpenAiApi* api, TenantId tenant, StreamSlots::Slot slot);
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    // Call this when the answer is generated. It frees the generation's slot before the client has
    // received the whole answer and sends its next request. It keeps the slot if the tenant has
    // reached its limit of answers being written.
    void GiveBackSlot();

   private:
    OpenAiApi* const api_;
    const TenantId tenant_;
    std::optional<StreamSlots::Slot> slot_;     // While it generates.
    std::optional<StreamSlots::Slot> writing_;  // While the client reads the answer.

    void EndRun();
  };
  struct Asked {
    Identity caller;
    ApiRequest request;
    std::vector<GenerateRequest> requests;  // One per prompt.
  };

  HttpResponse Models(const HttpRequest& request) const;
  HttpResponse Model(const HttpRequest& request) const;
  // The model and its adapters; empty without an engine.
  Json ModelList() const;
  // The request that Admit lets in.
  class Post;
  HttpServer::Admission Admit(ApiRequest::Kind kind, const HttpRequest& request);
  absl::StatusOr<std::unique_ptr<Place>> TakePlace(const Identity& caller)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether a request can ask for it: the model itself, or one of its adapters.
  bool Serves(const std::string& model) const;
  absl::StatusOr<Asked> Read(ApiRequest::Kind kind, const Identity& caller,
                             const std::string& token, std::string body, BodyMemory::Share& memory,
                             HttpExchange& exchange);
  absl::StatusOr<ApiRequest> Parse(ApiRequest::Kind kind, const Identity& caller,
                                   const std::string& body, BodyMemory::Share& memory,
                                   HttpExchange& exchange) const;
  struct Prepared {
    std::vector<std::vector<TokenId>> prompts;
    std::shared_ptr<const CompiledGrammar> grammar;  // Null: the answers can be anything.
  };
  // Tokenises, and compiles the answers' grammar, through the tenant's queue. Errors:
  // TOO_MANY_CALLS if too much work of the tenant waits.
  absl::StatusOr<Prepared> PrepareQueued(const ApiRequest& request, const Identity& caller,
                                         size_t bytes) const;
  absl::StatusOr<Prepared> Prepare(const ApiRequest& request) const;
  absl::StatusOr<std::vector<std::vector<TokenId>>> PromptsOf(const ApiRequest& request) const;
  // `token`: the one that the caller showed.
  absl::StatusOr<GenerateRequest> ToEngine(const ApiRequest& request, const Identity& caller,
                                           const std::string& token) const;

  void Refuse(const HttpResponse& response, HttpExchange& exchange) ABSL_LOCKS_EXCLUDED(mutex_);
  void Count(uint64_t Counts::*outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answer(const Asked& asked, Place& place, HttpExchange& exchange);
  void AnswerWhole(const Asked& asked, AnswerOutput& generation, Place& place,
                   HttpExchange& exchange);
  void AnswerInPieces(const Asked& asked, AnswerOutput& generation, Place& place,
                      HttpExchange& exchange);
  // The next round. Errors: the generation's; CANCELLED if the client has gone, DRAINING if a drain
  // cuts it, UNAUTHENTICATED if the caller's token was revoked.
  absl::StatusOr<AnswerOutput::Round> Next(const Asked& asked, AnswerOutput& generation,
                                           HttpExchange& exchange) const;
  ApiAnswer NewAnswer(const Asked& asked) const;

  const Options options_;
  Generator* const engine_;
  const std::string model_name_;
  const ModelText* const text_;
  const ServingState* const state_;
  const HttpFence* const fence_;
  const TenantTable* const tenants_;
  PromptQueues* const prompt_queues_;
  const absl::Time start_time_;
  StreamSlots slots_;
  StreamSlots writing_slots_;
  BodyMemory memory_;
  std::atomic<bool> cut_ = false;
  mutable absl::Mutex mutex_;
  uint32_t places_ ABSL_GUARDED_BY(mutex_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_OPENAI_API_H_
