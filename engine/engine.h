// The bundled engine: generates tokens with a model from a Hugging Face directory, its KV in the
// cache's blocks.
#ifndef PAGODA_ENGINE_ENGINE_H_
#define PAGODA_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/cpu_backend.h"
#include "manager/cache_client.h"
#include "pools/layout.h"

namespace pagoda {

struct GenerateRequest {
  std::vector<TokenId> prompt;
  uint32_t max_new_tokens = 1;
  // The first of these that is generated is the last token. The model's own eos_token_ids stop only
  // where the caller puts them here.
  std::vector<TokenId> stop_tokens;
  NamespaceKey name_space;
  // Asked on Generate's thread when the request's turn comes, and between the chunks of its prompt.
  // True ends the generation with CANCELLED. Empty: nobody cancels. Must not block for long.
  std::function<bool()> cancelled;
};

enum class FinishReason { kLength, kStopToken };

struct GenerateReport {
  FinishReason finish_reason = FinishReason::kLength;
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;  // Prompt tokens whose KV was in the cache.
  uint32_t generated_tokens = 0;
  absl::Duration queue_time;
  absl::Duration time_to_first_token;  // From Generate's call; the queue is in it.
  absl::Duration total_time;
};

// Called with each generated token, and with the logits it was chosen from ([vocab_size] fp32,
// valid during the call). Returns false to stop: the generation ends with CANCELLED. Must not block
// for long.
using TokenCallback = std::function<bool(TokenId token, absl::Span<const float> logits)>;

struct EngineStats {
  uint64_t running_requests = 0;
  uint64_t waiting_requests = 0;
  uint64_t prompt_tokens = 0;  // Totals since start.
  uint64_t reused_tokens = 0;
  uint64_t computed_tokens = 0;  // Tokens that went through the model, prompt and generated.
  uint64_t generated_tokens = 0;
};

// One model. Thread-safe: Generate may be called from several threads, requests run in the order of
// arrival.
class Engine {
 public:
  struct Options {
    std::string model_dir;
    uint32_t prefill_chunk_tokens = 512;  // At most this many tokens go through the model at once.
    CpuBackendOptions cpu;                // Threads, and what products are computed in.
  };

  // The KV layout that the model in `model_dir` needs: what the daemon makes its pools of, before
  // there is an engine. Errors: INVALID_CHECKPOINT.
  static absl::StatusOr<CacheSpec> CacheSpecForModel(const std::string& model_dir,
                                                     uint32_t tokens_per_block, DType kv_dtype);

  // Loads the checkpoint and maps the client's pools. `client` is the engine's own session; its
  // cache must have the layout and the fingerprint that CacheSpecForModel gives. Errors:
  // INVALID_CHECKPOINT (names the file, tensor or field), INVALID_ARGUMENT; those of the client.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Options options,
                                                        std::unique_ptr<CacheClient> client);
  ~Engine();

  // Generates greedily, on the caller's thread: the lowest of the most likely tokens. Whatever the
  // outcome, the sequence's blocks are given back; what was computed stays cached. Errors:
  // INVALID_PROMPT (empty, a token outside the vocabulary, longer with its new tokens than
  // max_position_embeddings), INVALID_COUNT (max_new_tokens is 0, or the cache can never hold the
  // sequence), BLOCKS_EXHAUSTED, CANCELLED (`on_token` or `request.cancelled` said so); the
  // client's own.
  absl::StatusOr<GenerateReport> Generate(const GenerateRequest& request,
                                          const TokenCallback& on_token);

  // Goes on in another session, where the one before is over: with its daemon, or with its lease.
  // Waits for its turn like a request, maps the pools of `client` in the place of the old ones, and
  // then destroys the old client; the weights stay. On an error nothing has changed, and `client`
  // is destroyed. Errors: INVALID_ARGUMENT (a cache of another model or layout); those of the
  // client.
  absl::Status Attach(std::unique_ptr<CacheClient> client);

  // Whether Generate would refuse the request for what it asks: INVALID_PROMPT or INVALID_COUNT.
  // Cheap, takes no turn.
  absl::Status Check(const GenerateRequest& request) const;

  const ModelConfig& model() const;
  EngineStats Stats() const;

 private:
  class State;
  explicit Engine(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_ENGINE_H_
