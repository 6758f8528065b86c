#ifndef PAGODA_CLIENTS_PAGODA_RUN_LOCAL_MODEL_H_
#define PAGODA_CLIENTS_PAGODA_RUN_LOCAL_MODEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/engine_options.h"
#include "clients/pagoda_run/local_cache.h"
#include "engine/engine.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/structured/grammar.h"
#include "engine/text/model_text.h"
#include "pools/layout.h"

namespace pagoda {

// Where the KV of a conversation is.
enum class LocalKv {
  kPaged,  // In blocks, whose prefixes later prompts reuse.
  kFlat,   // In one tensor per layer for all sequences (KvArrangement::kTokenFlat). Reuses nothing.
  kBasic,  // In one tensor per sequence and layer, with its own attention. Reuses nothing.
};
inline Choices<LocalKv> LocalKvs() {
  return {{"paged", LocalKv::kPaged}, {"flat", LocalKv::kFlat}, {"basic", LocalKv::kBasic}};
}

// A prompt in token ids, and the tokens that end its answer.
struct LocalPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;
};

struct LocalAnswer {
  std::vector<TokenId> tokens;
  std::string text;         // Without special tokens; empty without a tokenizer.
  GenerateReport report;    // Empty if the answer was stopped before its first token.
  bool is_stopped = false;  // By Stop.
};

// A model with its KV in this process. Thread-compatible; Stop is thread-safe.
class LocalModel {
 public:
  struct Options {
    std::string model;    // A Hugging Face folder, a GGUF file, or a folder with one.
    std::string adapter;  // The folder of a LoRA adapter for all answers; empty: none.
    LocalKv kv = LocalKv::kPaged;
    EngineBackend backend = EngineBackend::kAuto;
    DType kv_dtype = DType::kFloat32;
    ComputeType compute = ComputeType::kAuto;
    uint32_t threads = 0;  // 0: one per processor.
    // The most tokens of a prompt and its answer. 0: 4,096, or the model's own limit if that is
    // less. A larger number than the model's limit is lowered to it.
    uint32_t context = 0;
    uint32_t cached_tokens = 0;  // Paged: how many tokens the pool holds; at least the context.
    uint32_t tokens_per_block = 16;
    uint32_t max_step_tokens = 512;
    std::function<void(uint64_t bytes)> on_load = nullptr;  // See Engine::Options.
  };

  // Loads the model. With kAuto it computes on the first GPU if the self-test finds kernels for the
  // model there, otherwise on the CPU. Errors: those of Engine::CacheSpecForModel, LocalCache and
  // Engine::Create; INVALID_ARGUMENT for kFlat and kBasic on a GPU.
  static absl::StatusOr<std::unique_ptr<LocalModel>> Load(Options options);

  // Errors: INVALID_PROMPT; INVALID_ARGUMENT and INVALID_CHECKPOINT as in ModelText.
  absl::StatusOr<LocalPrompt> ReadText(const std::string& text) const;
  absl::StatusOr<LocalPrompt> ReadConversation(absl::Span<const ChatMessage> messages) const;

  struct Request {
    LocalPrompt prompt;
    uint32_t max_new_tokens = 1;  // Fewer if the context ends before.
    SamplingParams sampling;
    uint32_t max_draft_tokens = 0;
    std::optional<StructuredOutput> structured = std::nullopt;  // What the text must be.
    // All are called on the caller's thread, and may be empty. `on_token` gets the text that the
    // token completes. `on_prompt` is called some times a second until the first token.
    std::function<void(TokenId token, const std::string& text)> on_token = nullptr;
    std::function<void(uint64_t done_tokens, uint64_t tokens)> on_prompt = nullptr;
  };
  // Answers, and returns when the answer is complete or stopped. Errors: those of Engine::Submit,
  // ModelText::CompileGrammar and the report; INVALID_PROMPT if the prompt fills the context.
  absl::StatusOr<LocalAnswer> Answer(Request request);

  // Ends the running answer after its next token. Returns false if there is none.
  bool Stop();

  const ModelConfig& config() const { return engine_->model(); }
  uint32_t context() const { return context_; }
  // For people: "Qwen3ForCausalLM on cpu, 2 threads, ..., kv paged, 4,096 tokens".
  std::string description() const;
  const std::optional<GpuSelfTestReport>& gpu_report() const { return engine_->gpu_report(); }
  // OK, or why the model takes no text, or no conversations.
  absl::Status takes_text() const { return text_.tokenizer.status(); }
  absl::Status takes_conversations() const { return text_.chat.status(); }

 private:
  LocalModel(Options options, uint32_t context, ModelText text)
      : options_(std::move(options)), context_(context), text_(std::move(text)) {}

  // Of the model and of its tokenizer. REQUIRES: there is a tokenizer.
  std::vector<TokenId> EndTokens() const;

  const Options options_;
  const uint32_t context_;
  const ModelText text_;
  std::unique_ptr<LocalCache> cache_;  // With kPaged.
  std::unique_ptr<Engine> engine_;     // Its client uses cache_.
  // The engine's thread reads them.
  std::atomic<bool> is_answering_ = false;
  std::atomic<bool> is_stopping_ = false;
};

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_RUN_LOCAL_MODEL_H_
