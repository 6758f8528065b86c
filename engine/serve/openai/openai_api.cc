#include "engine/serve/openai/openai_api.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/error.h"
#include "engine/serve/openai/answer_stream.h"
#include "engine/serve/openai/api_error.h"
#include "engine/serve/prompt/model_prompt.h"
#include "nlohmann/json.hpp"
#include "server/callers/admission.h"

namespace pagoda::server {
namespace {

using Kind = ApiRequest::Kind;

// The interval at which a generation checks that the client is connected.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);
// The largest valid body is parsed in about a second, if nothing else runs.
constexpr absl::Duration kParseTime = absl::Seconds(10);
// A smaller body is parsed in less than a millisecond, at once.
constexpr size_t kQueuedBodyBytes = size_t{32} << 10;
// The memory of a request's body and values, and of all requests together, in the largest bodies.
constexpr size_t kBodiesOfOne = 8;
constexpr size_t kBodiesOfAll = 16;
// The time that generations cut by a drain have to send an error.
constexpr absl::Duration kCutTime = absl::Milliseconds(500);
// The limit for a chat that gives no length.
constexpr uint32_t kDefaultChatTokens = 1024;

// If the prompt fills the context, returns 1: Engine::Check then refuses it with the numbers.
uint32_t DefaultTokens(const Generator& engine, size_t prompt_tokens) {
  const size_t context = engine.model().max_position_embeddings;
  const size_t left = context - std::min(context, prompt_tokens);
  return static_cast<uint32_t>(std::clamp<size_t>(left, 1, kDefaultChatTokens));
}

HttpResponse Refusal(const absl::Status& status) {
  const bool wrong_host = absl::IsFailedPrecondition(status) && ReasonOf(status) == Reason::kNone;
  return wrong_host ? WrongHostResponse(status) : ApiErrorResponse(status);
}

uint32_t ChoicesOf(const std::vector<GenerateRequest>& requests) {
  uint32_t choices = 0;
  for (const GenerateRequest& request : requests) choices += request.num_samples;
  return choices;
}

// Runs `work` in the tenant's queue, and waits for its end. Errors: TOO_MANY_CALLS if too much work
// of the tenant waits.
absl::Status RunQueued(TenantQueues& queue, TenantId tenant, size_t bytes,
                       const std::function<void()>& work) {
  if (absl::Status status = queue.CheckCapacity(tenant); !status.ok()) return status;
  absl::Notification done;
  queue.RunLater(tenant, bytes, [&] {
    work();
    done.Notify();
  });
  done.WaitForNotification();
  return absl::OkStatus();
}

bool HasText(const ApiRequest& request) {
  const auto is_text = [](const ApiPrompt& prompt) {
    return std::holds_alternative<std::string>(prompt);
  };
  return request.kind == Kind::kChat ||
         std::any_of(request.prompts.begin(), request.prompts.end(), is_text);
}

void Append(const ChoicePiece& piece, ChoicePiece& whole) {
  whole.text += piece.text;
  whole.tokens.insert(whole.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  whole.logprobs.insert(whole.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
  if (piece.finish_reason != nullptr) whole.finish_reason = piece.finish_reason;
}

}  // namespace

OpenAiApi::OpenAiApi(Options options, Generator* engine, std::string model_name,
                     const ModelText* text, const ServingState* state, const HttpFence* fence,
                     const TenantTable* tenants, PromptQueues* prompt_queues)
    : options_(options),
      engine_(engine),
      model_name_(std::move(model_name)),
      text_(text),
      state_(state),
      fence_(fence),
      tenants_(tenants),
      prompt_queues_(prompt_queues),
      start_time_(absl::Now()),
      slots_(options.max_generations, tenants->size()),
      writing_slots_(options.max_generations, tenants->size()),
      memory_(kBodiesOfAll * options.max_body_bytes, kBodiesOfOne * options.max_body_bytes,
              tenants->size()) {}

void OpenAiApi::AddRoutes(HttpServer::Routes* routes, HttpServer::Posts* posts) {
  (*routes)["/v1/models"] = [this](const HttpRequest& request) { return Models(request); };
  (*routes)["/v1/models/*"] = [this](const HttpRequest& request) { return Model(request); };
  const auto add = [&](const char* path, Kind kind) {
    posts->routes[path] = [this, kind](const HttpRequest& request) { return Admit(kind, request); };
  };
  add("/v1/completions", Kind::kCompletion);
  add("/v1/chat/completions", Kind::kChat);
  posts->threads += 2 * options_.max_generations;  // Rules 1 and 2.
  posts->max_body_bytes = options_.max_body_bytes;
}

HttpResponse OpenAiApi::Models(const HttpRequest& request) const {
  const absl::StatusOr<Identity> caller = fence_->Identify(request);
  if (!caller.ok()) return Refusal(caller.status());
  return {.content_type = "application/json",
          .body = TextOf({{"object", "list"}, {"data", ModelList()}})};
}

HttpResponse OpenAiApi::Model(const HttpRequest& request) const {
  const absl::StatusOr<Identity> caller = fence_->Identify(request);
  if (!caller.ok()) return Refusal(caller.status());
  for (const Json& model : ModelList()) {
    if (model["id"] != request.rest) continue;
    return {.content_type = "application/json", .body = TextOf(model)};
  }
  return ApiErrorResponse(UnknownModel(request.rest, model_name_));
}

Json OpenAiApi::ModelList() const {
  Json models = Json::array();
  models.push_back({{"id", model_name_},
                    {"object", "model"},
                    {"created", absl::ToUnixSeconds(start_time_)},
                    {"owned_by", "pagoda"},
                    {"max_model_len", engine_->model().max_position_embeddings}});
  for (const NamedAdapter& adapter : engine_->adapters()) {
    Json model = models.front();
    model["id"] = adapter.name;
    model["parent"] = model_name_;
    models.push_back(std::move(model));
  }
  return models;
}

absl::StatusOr<std::unique_ptr<OpenAiApi::Place>> OpenAiApi::TakePlace(const Identity& caller) {
  absl::StatusOr<StreamSlots::Slot> slot = slots_.Take(caller.tenant);
  if (!slot.ok()) {
    return MakeError(Reason::kTooManyCalls,
                     absl::StrCat("too many generations are running over HTTP; the limit is ",
                                  options_.max_generations, " (server.max_http_generations)"));
  }
  return std::make_unique<Place>(this, caller.tenant, *std::move(slot));
}

OpenAiApi::Place::Place(OpenAiApi* api, TenantId tenant, StreamSlots::Slot slot)
    : api_(api), tenant_(tenant), slot_(std::move(slot)) {
  absl::MutexLock lock(&api_->mutex_);
  ++api_->places_;
  ++api_->counts_.running;
}

OpenAiApi::Place::~Place() {
  if (!writing_.has_value()) EndRun();
  // Release the slots before the count below: after the last place is gone, a drain can return and
  // the objects that hold the slots can be destroyed.
  slot_.reset();
  writing_.reset();
  absl::MutexLock lock(&api_->mutex_);
  --api_->places_;
}

void OpenAiApi::Place::GiveBackSlot() {
  absl::StatusOr<StreamSlots::Slot> writing = api_->writing_slots_.Take(tenant_);
  if (!writing.ok()) return;
  writing_.emplace(*std::move(writing));
  slot_.reset();
  EndRun();
}

void OpenAiApi::Place::EndRun() {
  absl::MutexLock lock(&api_->mutex_);
  --api_->counts_.running;
}

void OpenAiApi::Drain(absl::Time end) {
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return places_ == 0; };
  absl::MutexLock lock(&mutex_);
  if (mutex_.AwaitWithDeadline(absl::Condition(&none), end)) return;
  cut_.store(true, std::memory_order_relaxed);
  // Wait no longer: a client that reads slowly or not at all would delay the daemon's end.
  mutex_.AwaitWithTimeout(absl::Condition(&none), kCutTime);
}

OpenAiApi::Counts OpenAiApi::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

void OpenAiApi::Count(uint64_t Counts::*outcome) {
  absl::MutexLock lock(&mutex_);
  ++(counts_.*outcome);
}

void OpenAiApi::Refuse(const HttpResponse& response, HttpExchange& exchange) {
  Count(&Counts::refused);
  exchange.Answer(response);
}

class OpenAiApi::Post final : public HttpPost {
 public:
  Post(OpenAiApi* api, Kind kind, const Identity& caller, std::string token,
       std::unique_ptr<Place> place)
      : api_(api),
        kind_(kind),
        caller_(caller),
        token_(std::move(token)),
        place_(std::move(place)),
        memory_(std::in_place, &api->memory_, caller_.tenant) {}
  ~Post() override {
    if (place_ != nullptr) api_->Count(&Counts::refused);  // The client has left.
  }

  absl::Status Keep(size_t bytes) override { return memory_->Add(bytes); }

  void Run(absl::StatusOr<std::string> body, HttpExchange& exchange) override {
    const std::unique_ptr<Place> place = std::move(place_);
    absl::StatusOr<Asked> asked =
        body.ok() ? api_->Read(kind_, caller_, token_, *std::move(body), *memory_, exchange)
                  : body.status();
    memory_.reset();
    if (!asked.ok()) return api_->Refuse(ApiErrorResponse(asked.status()), exchange);
    api_->Answer(*asked, *place, exchange);
  }

 private:
  OpenAiApi* const api_;
  const Kind kind_;
  const Identity caller_;
  const std::string token_;
  std::unique_ptr<Place> place_;  // Null once it runs.
  std::optional<BodyMemory::Share> memory_;
};

HttpServer::Admission OpenAiApi::Admit(Kind kind, const HttpRequest& request) {
  const auto refuse = [this](const HttpResponse& response) {
    Count(&Counts::refused);
    return response;
  };
  const absl::StatusOr<Identity> caller = fence_->Identify(request);
  if (!caller.ok()) return refuse(Refusal(caller.status()));
  absl::StatusOr<std::unique_ptr<Place>> place = TakePlace(*caller);
  if (!place.ok()) return refuse(ApiErrorResponse(place.status()));
  // After the place is taken: either the drain sees the place, or this check sees the drain.
  if (absl::Status status = state_->CheckAcceptsWork(); !status.ok()) {
    return refuse(ApiErrorResponse(status));
  }
  return std::make_unique<Post>(this, kind, *caller,
                                std::string(BearerToken(request.authorization.value_or(""))),
                                *std::move(place));
}

absl::StatusOr<OpenAiApi::Prepared> OpenAiApi::PrepareQueued(const ApiRequest& request,
                                                             const Identity& caller,
                                                             size_t bytes) const {
  const bool compiles = request.structured.has_value() && text_->MustCompile(*request.structured);
  // Token ids are ready. They wait for no text.
  if (!compiles && !HasText(request)) return Prepare(request);
  TenantQueues& queue = compiles ? prompt_queues_->grammars : prompt_queues_->texts;
  absl::StatusOr<Prepared> prepared;
  const absl::Status queued =
      RunQueued(queue, caller.tenant, bytes, [&] { prepared = Prepare(request); });
  return queued.ok() ? std::move(prepared) : queued;
}

absl::StatusOr<OpenAiApi::Prepared> OpenAiApi::Prepare(const ApiRequest& request) const {
  absl::StatusOr<std::vector<std::vector<TokenId>>> prompts = PromptsOf(request);
  if (!prompts.ok()) return prompts.status();
  if (!request.structured.has_value()) return Prepared{*std::move(prompts), nullptr};
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> grammar =
      text_->CompileGrammar(*request.structured);
  if (!grammar.ok()) return grammar.status();
  return Prepared{*std::move(prompts), *std::move(grammar)};
}

absl::StatusOr<std::vector<std::vector<TokenId>>> OpenAiApi::PromptsOf(
    const ApiRequest& request) const {
  std::vector<std::vector<TokenId>> prompts;
  const ModelConfig& model = engine_->model();
  if (request.kind == Kind::kChat) {
    absl::StatusOr<ModelPrompt> prompt =
        EncodeConversation({.messages = request.messages,
                            .tools = request.tools,
                            .template_kwargs = request.template_kwargs},
                           *text_, model, absl::ToCivilSecond(absl::Now(), absl::UTCTimeZone()));
    if (!prompt.ok()) return prompt.status();
    prompts.push_back(std::move(prompt->tokens));
    return prompts;
  }
  for (const ApiPrompt& prompt : request.prompts) {
    if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) {
      prompts.push_back(*tokens);
      continue;
    }
    absl::StatusOr<ModelPrompt> encoded = EncodeText(std::get<std::string>(prompt), *text_, model);
    if (!encoded.ok()) return encoded.status();
    prompts.push_back(std::move(encoded->tokens));
  }
  return prompts;
}

absl::StatusOr<GenerateRequest> OpenAiApi::ToEngine(const ApiRequest& request,
                                                    const Identity& caller,
                                                    const std::string& token) const {
  if (absl::Status status = CheckPriority(*tenants_, caller, request.priority); !status.ok()) {
    return status;
  }
  GenerateRequest wanted{.stop_tokens = request.stop_token_ids,
                         .sampling = request.sampling,
                         .num_samples = request.samples,
                         .max_draft_tokens = request.max_draft_tokens,
                         .beam_width = request.beam_width,
                         .length_penalty = request.length_penalty,
                         .early_stopping = request.early_stopping,
                         .priority = request.priority,
                         .tenant = (*tenants_)[caller.tenant].name,
                         .token = token};
  absl::StatusOr<NamespaceKey> name_space =
      tenants_->Confine(caller.tenant, {.cache_salt = request.cache_salt});
  if (!name_space.ok()) return name_space.status();
  wanted.name_space = *std::move(name_space);
  if (request.model != model_name_) wanted.adapter = request.model;
  if (!request.ignore_eos) {
    const PromptKind kind =
        request.kind == Kind::kChat ? PromptKind::kConversation : PromptKind::kText;
    const std::vector<TokenId> ends = EndTokens(kind, *text_, engine_->model());
    wanted.stop_tokens.insert(wanted.stop_tokens.end(), ends.begin(), ends.end());
  }
  if (!request.has_seed) {
    absl::BitGen random;
    wanted.sampling.seed = absl::Uniform<uint64_t>(random);
  }
  return wanted;
}

bool OpenAiApi::Serves(const std::string& model) const {
  const absl::Span<const NamedAdapter> adapters = engine_->adapters();
  return model == model_name_ ||
         std::any_of(adapters.begin(), adapters.end(),
                     [&](const NamedAdapter& adapter) { return adapter.name == model; });
}

absl::StatusOr<ApiRequest> OpenAiApi::Parse(Kind kind, const Identity& caller,
                                            const std::string& body, BodyMemory::Share& memory,
                                            HttpExchange& exchange) const {
  absl::StatusOr<ApiRequest> request;
  const auto parse = [&] {
    const absl::Time end = absl::Now() + kParseTime;
    request = ParseApiRequest(kind, body, [&](size_t bytes) -> absl::Status {
      if (cut_.load(std::memory_order_relaxed)) {
        return MakeError(Reason::kDraining, "the daemon is shutting down");
      }
      if (!exchange.ClientIsThere()) return absl::CancelledError("the client has gone");
      if (absl::Now() > end) {
        return absl::DeadlineExceededError(absl::StrCat("reading the JSON of ", body.size(),
                                                        " bytes took longer than ",
                                                        absl::FormatDuration(kParseTime)));
      }
      return memory.Add(bytes);
    });
  };
  if (body.size() < kQueuedBodyBytes) {
    parse();
    return request;
  }
  const absl::Status queued = RunQueued(prompt_queues_->bodies, caller.tenant, body.size(), parse);
  return queued.ok() ? std::move(request) : queued;
}

absl::StatusOr<OpenAiApi::Asked> OpenAiApi::Read(Kind kind, const Identity& caller,
                                                 const std::string& token, std::string body,
                                                 BodyMemory::Share& memory,
                                                 HttpExchange& exchange) {
  const SteadyTime arrival = SteadyNow();
  absl::StatusOr<ApiRequest> request = Parse(kind, caller, body, memory, exchange);
  const size_t body_bytes = body.size();
  body = std::string();
  if (!request.ok()) return request.status();
  if (!Serves(request->model)) return UnknownModel(request->model, model_name_);
  if (!request->stop.empty() && !text_->tokenizer.ok()) return text_->tokenizer.status();
  const absl::StatusOr<GenerateRequest> wanted = ToEngine(*request, caller, token);
  if (!wanted.ok()) return wanted.status();
  absl::StatusOr<Prepared> prepared = PrepareQueued(*request, caller, body_bytes);
  if (!prepared.ok()) return prepared.status();
  Asked asked{.caller = caller, .request = *std::move(request), .requests = {}};
  asked.request.prompts = {};  // The engine has them as tokens.
  asked.request.messages = {};
  asked.request.tools = {};
  for (std::vector<TokenId>& prompt : prepared->prompts) {
    GenerateRequest one = *wanted;
    one.grammar = prepared->grammar;
    one.max_new_tokens = asked.request.max_tokens.value_or(DefaultTokens(*engine_, prompt.size()));
    one.prompt = std::move(prompt);
    one.arrival = arrival;
    // Check all requests before submitting the first.
    if (absl::Status status = engine_->Check(one); !status.ok()) return status;
    asked.requests.push_back(std::move(one));
  }
  return asked;
}

void OpenAiApi::Answer(const Asked& asked, Place& place, HttpExchange& exchange) {
  const auto generation = std::make_shared<AnswerOutput>(
      text_->tokenizer.ok() ? text_->tokenizer->get() : nullptr,
      asked.request.sampling.top_logprobs.has_value(), asked.request.stop);
  for (const GenerateRequest& request : asked.requests) {
    if (absl::Status status = generation->Submit(*engine_, request); !status.ok()) {
      return Refuse(ApiErrorResponse(status), exchange);
    }
  }
  if (asked.request.stream) {
    AnswerInPieces(asked, *generation, place, exchange);
  } else {
    AnswerWhole(asked, *generation, place, exchange);
  }
}

ApiAnswer OpenAiApi::NewAnswer(const Asked& asked) const {
  const bool ids = asked.request.return_token_ids || !text_->tokenizer.ok();
  return ApiAnswer(asked.request.kind, asked.request.model,
                   ids ? ApiAnswer::TokenIds::kShow : ApiAnswer::TokenIds::kLeaveOut,
                   ReuseNumbersFor(*tenants_, asked.caller), absl::Now());
}

absl::StatusOr<AnswerOutput::Round> OpenAiApi::Next(const Asked& asked, AnswerOutput& generation,
                                                    HttpExchange& exchange) const {
  AnswerOutput::Round round = generation.Take(kLookInterval);
  absl::Status status = round.status;
  if (!round.ended && cut_.load(std::memory_order_relaxed)) {
    status.Update(MakeError(Reason::kDraining, "the daemon is shutting down"));
  }
  if (!fence_->StillKnows(asked.caller)) status.Update(RevokedError());
  if (!exchange.ClientIsThere()) status.Update(absl::CancelledError("the client has gone"));
  if (status.ok()) return round;
  generation.Cancel();
  return status;
}

void OpenAiApi::AnswerWhole(const Asked& asked, AnswerOutput& generation, Place& place,
                            HttpExchange& exchange) {
  std::vector<ChoicePiece> choices(ChoicesOf(asked.requests));
  for (uint32_t i = 0; i < choices.size(); ++i) choices[i].choice = i;
  while (true) {
    const absl::StatusOr<AnswerOutput::Round> round = Next(asked, generation, exchange);
    if (!round.ok()) {
      Count(generation.has_begun() ? &Counts::failed : &Counts::refused);
      return exchange.Answer(ApiErrorResponse(round.status()));
    }
    for (const ChoicePiece& piece : round->pieces) Append(piece, choices[piece.choice]);
    if (round->ended) break;
  }
  const ApiAnswer answer = NewAnswer(asked);
  const HttpResponse response{.content_type = "application/json",
                              .body = TextOf(answer.Whole(choices, generation.Reports()))};
  place.GiveBackSlot();
  Count(&Counts::answered);
  exchange.Answer(response);
}

void OpenAiApi::AnswerInPieces(const Asked& asked, AnswerOutput& generation, Place& place,
                               HttpExchange& exchange) {
  const ApiAnswer answer = NewAnswer(asked);
  AnswerStream stream(&answer, &exchange,
                      {.choices = ChoicesOf(asked.requests),
                       .is_chat = asked.request.kind == Kind::kChat,
                       .include_usage = asked.request.include_usage});
  while (true) {
    const absl::StatusOr<AnswerOutput::Round> round = Next(asked, generation, exchange);
    const bool taken = round.ok() && stream.Add(round->pieces);
    if (!taken) Count(generation.has_begun() ? &Counts::failed : &Counts::refused);
    if (!round.ok()) return stream.Fail(round.status());
    if (!taken) return generation.Cancel();
    if (round->ended) break;
  }
  place.GiveBackSlot();
  Count(&Counts::answered);
  stream.Finish(generation.Reports());
}

}  // namespace pagoda::server
