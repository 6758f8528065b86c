#include "engine/engine.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/kv_pools.h"
#include "engine/model/transformer.h"
#include "engine/request_run.h"
#include "engine/turn_queue.h"
#include "pools/error.h"

namespace pagoda {
namespace {

absl::Status CheckRequest(const GenerateRequest& request, const ModelConfig& model) {
  const auto invalid_prompt = [](const auto&... parts) {
    return MakeError(Reason::kInvalidPrompt, absl::StrCat(parts...));
  };
  if (request.prompt.empty()) return invalid_prompt("the prompt has no tokens");
  if (request.max_new_tokens == 0) {
    return MakeError(Reason::kInvalidCount, "max_new_tokens is 0");
  }
  const uint64_t total_tokens = request.prompt.size() + uint64_t{request.max_new_tokens};
  if (total_tokens > model.max_position_embeddings) {
    return invalid_prompt("the prompt's ", request.prompt.size(), " tokens and ",
                          request.max_new_tokens, " new ones are more than the model's ",
                          model.max_position_embeddings);
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= model.vocab_size) {
      return invalid_prompt("prompt token ", i, " is ", request.prompt[i], ", the vocabulary has ",
                            model.vocab_size);
    }
  }
  return absl::OkStatus();
}

// KV of one model is nothing to another of the same shape.
absl::Status CheckCache(const CacheInfo& cache, const std::string& fingerprint) {
  if (cache.model_fingerprint == fingerprint) return absl::OkStatus();
  return MakeError(
      Reason::kInvalidArgument,
      absl::StrCat("cache ", cache.name, " is for the model \"", cache.model_fingerprint,
                   "\", the engine's model is \"", fingerprint, "\""));
}

}  // namespace

class Engine::State {
 public:
  State(const Options& options, std::unique_ptr<Transformer> model, std::string fingerprint,
        std::unique_ptr<CacheClient> client, KvPools pools)
      : options_(options),
        fingerprint_(std::move(fingerprint)),
        model_(std::move(model)),
        client_(std::move(client)),
        pools_(std::move(pools)) {}

  const ModelConfig& model() const { return model_->config(); }

  absl::StatusOr<GenerateReport> Generate(const GenerateRequest& request,
                                          const TokenCallback& on_token) {
    const absl::Time arrival = absl::Now();
    if (absl::Status status = CheckRequest(request, model()); !status.ok()) return status;
    const TurnQueue::Turn turn = queue_.Wait();
    FreeLeftovers();

    GenerateReport report;
    report.queue_time = absl::Now() - arrival;
    const auto timed = [&](TokenId token, absl::Span<const float> logits) {
      if (report.generated_tokens++ == 0) report.time_to_first_token = absl::Now() - arrival;
      return on_token(token, logits);
    };
    RequestRun run({.sequence = SequenceId(++sequences_),
                    .request = request,
                    .prefill_chunk_tokens = options_.prefill_chunk_tokens,
                    .model = *model_,
                    .client = *client_,
                    .kv = pools_.layers(),
                    .counters = counters_});
    absl::StatusOr<FinishReason> finish = run.Generate(timed);
    if (run.is_open()) leftovers_.push_back(FreeSequence{SequenceId(sequences_)});
    if (!finish.ok()) return finish.status();
    report.finish_reason = *finish;
    report.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
    report.reused_tokens = run.reused_tokens();
    report.total_time = absl::Now() - arrival;
    return report;
  }

  absl::Status Attach(std::unique_ptr<CacheClient> client) {
    const TurnQueue::Turn turn = queue_.Wait();
    if (absl::Status fits = CheckCache(client->info(), fingerprint_); !fits.ok()) return fits;
    absl::StatusOr<KvPools> pools = KvPools::Map(*client, model());
    if (!pools.ok()) return pools.status();
    // In this order: the end of a client says that its pools are not touched any more.
    pools_ = *std::move(pools);
    client_ = std::move(client);
    leftovers_.clear();
    return absl::OkStatus();
  }

  EngineStats Stats() const {
    const TurnQueue::Lengths lengths = queue_.lengths();
    return {.running_requests = lengths.running,
            .waiting_requests = lengths.waiting,
            .prompt_tokens = counters_.prompt_tokens,
            .reused_tokens = counters_.reused_tokens,
            .computed_tokens = counters_.computed_tokens,
            .generated_tokens = counters_.generated_tokens};
  }

 private:
  // What requests could not free because the client could not be asked.
  void FreeLeftovers() {
    if (!leftovers_.empty() && client_->Execute(leftovers_).ok()) leftovers_.clear();
  }

  const Options options_;
  const std::string fingerprint_;
  EngineCounters counters_;
  TurnQueue queue_;

  // Whose turn it is uses these.
  const std::unique_ptr<Transformer> model_;
  std::unique_ptr<CacheClient> client_;
  KvPools pools_;
  uint64_t sequences_ = 0;
  std::vector<Operation> leftovers_;
};

absl::StatusOr<CacheSpec> Engine::CacheSpecForModel(const std::string& model_dir,
                                                    uint32_t tokens_per_block, DType kv_dtype) {
  absl::StatusOr<ModelConfig> config = LoadModelConfig(model_dir);
  if (!config.ok()) return config.status();
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(model_dir);
  if (!checkpoint.ok()) return checkpoint.status();
  CacheSpec spec;
  spec.model_fingerprint = checkpoint->Fingerprint(*config);
  spec.tokens_per_block = tokens_per_block;
  for (const LayerConfig& layer : config->layers) {
    spec.layers.push_back({.window = layer.window,
                           .num_kv_heads = layer.num_kv_heads,
                           .head_dim = config->head_dim,
                           .dtype = kv_dtype,
                           .kind = KvKind::kKeyAndValue});
  }
  return spec;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Options options,
                                                       std::unique_ptr<CacheClient> client) {
  if (options.prefill_chunk_tokens == 0) {
    return MakeError(Reason::kInvalidArgument, "prefill_chunk_tokens is 0");
  }
  absl::StatusOr<ModelConfig> config = LoadModelConfig(options.model_dir);
  if (!config.ok()) return config.status();
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(options.model_dir);
  if (!checkpoint.ok()) return checkpoint.status();
  std::string fingerprint = checkpoint->Fingerprint(*config);
  absl::Status fits = CheckCache(client->info(), fingerprint);
  if (!fits.ok()) return fits;
  absl::StatusOr<KvPools> pools = KvPools::Map(*client, *config);
  if (!pools.ok()) return pools.status();
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCpuBackend(options.cpu);
  if (!backend.ok()) return backend.status();
  absl::StatusOr<std::unique_ptr<Transformer>> model =
      Transformer::Create(*std::move(config), *std::move(checkpoint), *std::move(backend));
  if (!model.ok()) return model.status();
  return absl::WrapUnique(new Engine(std::make_unique<State>(
      options, *std::move(model), std::move(fingerprint), std::move(client), *std::move(pools))));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

absl::StatusOr<GenerateReport> Engine::Generate(const GenerateRequest& request,
                                                const TokenCallback& on_token) {
  return state_->Generate(request, on_token);
}

absl::Status Engine::Attach(std::unique_ptr<CacheClient> client) {
  return state_->Attach(std::move(client));
}

absl::Status Engine::Check(const GenerateRequest& request) const {
  return CheckRequest(request, state_->model());
}

const ModelConfig& Engine::model() const { return state_->model(); }
EngineStats Engine::Stats() const { return state_->Stats(); }

}  // namespace pagoda
