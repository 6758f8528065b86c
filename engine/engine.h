// The bundled engine. It generates tokens with a model from a Hugging Face directory or a GGUF
// file, and keeps its KV in the cache's blocks.
#ifndef PAGODA_ENGINE_ENGINE_H_
#define PAGODA_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/engine_options.h"
#include "engine/checkpoint/config/model_config.h"
#include "engine/generator.h"
#include "engine/kv_file.h"
#include "engine/model/backend/gpu_report.h"
#include "engine/model/cpu/cpu_backend.h"
#include "engine/request/generate.h"
#include "engine/request/named_adapters.h"
#include "engine/schedule/sample.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/waiting_places.h"
#include "engine/words/gpu_graphs.h"
#include "manager/api/cache_client.h"
#include "pools/layout.h"

namespace pagoda {

// One model. Requests run side by side on the engine's thread (schedule/scheduler.h). Thread-safe.
// The destructor ends the remaining requests with CANCELLED.
class Engine final : public Generator {
 public:
  struct Options {
    std::string model_dir;
    EngineBackend backend = EngineBackend::kAuto;
    GpuAttention gpu_attention = GpuAttention::kAuto;
    GpuGraphs gpu_graphs = GpuGraphs::kAuto;
    // The report of the device that has the client's pools, if the self-test has already run there
    // for this model and these options. Otherwise Create runs the self-test (TestGpu).
    std::optional<GpuSelfTestReport> gpu_report;
    CpuBackendOptions cpu;                     // Its `compute` also applies to a GPU.
    std::vector<AdapterFolder> adapters = {};  // See GenerateRequest::adapter.
    Scheduler::Options scheduler;
    // Limits for requests that have not begun: a request above the number or the bytes is refused.
    // The tenants share the limits, by GenerateRequest::tenant. An unlisted name counts as the
    // first one.
    WaitingPlaces::Limits waiting;
    std::vector<std::string> tenants = {""};
    // Called by Create while it loads the weights, on its thread: see LoadWatch. May be empty.
    std::function<void(uint64_t bytes)> on_load = nullptr;
    // Called with a sentence when the engine goes on in a slower way than it began: at most once
    // for each reason, on the engine's thread. May be empty.
    std::function<void(const std::string& what)> on_warning = nullptr;
  };

  // The KV layout that the model in `model_dir` needs. The daemon makes its pools from it before
  // there is an engine. Errors: INVALID_CHECKPOINT.
  static absl::StatusOr<CacheSpec> CacheSpecForModel(const std::string& model_dir,
                                                     uint32_t tokens_per_block, DType kv_dtype);

  // Loads the checkpoint and the adapters, and maps the client's pools. `client` is the engine's
  // own session. Its cache must have the layout and the fingerprint that CacheSpecForModel gives,
  // and primary pools that the backend reaches. Errors: INVALID_CHECKPOINT (names the file, tensor
  // or field, and the adapter), MODEL_MISMATCH, INVALID_ARGUMENT; the client's; MakeBackend's,
  // among them FAILED_PRECONDITION if the self-test leaves no kernels for the GPU that has the
  // pools.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Options options,
                                                        std::unique_ptr<CacheClient> client);
  ~Engine() override;

  // Queues a request and returns. The engine's thread calls `on_token` for each token and then,
  // once, `on_end`. Both can submit requests, but must not wait for the engine. Whatever the
  // outcome, the sequences' blocks are released before `on_end`; the computed KV stays cached.
  //
  // Errors, after which no callback is called: those of Check; QUEUE_FULL (the tenant's share of
  // the queue is full); INVALID_COUNT (a request of so many bytes can never wait); those of
  // CheckFiles. Errors of the report, through `on_end`: BLOCKS_EXHAUSTED (other clients hold the
  // cache); TENANT_QUOTA_EXCEEDED, TOO_MANY_SEQUENCES and SEQUENCE_BYTES_EXHAUSTED (other clients
  // of the tenant hold its quota); CANCELLED (`on_token` or `request.cancelled` asked for it, or
  // the engine ended); the client's own.
  absl::Status Submit(GenerateRequest request, TokenCallback on_token,
                      EndCallback on_end) override {
    return Submit(std::move(request), std::move(on_token), std::move(on_end), Entry());
  }

  // Called at most once, on any thread, with the prompt's tokens that were brought into the cache
  // from other machines, or with the error that ends the request. It may be called after the end of
  // the request or of the engine: then nothing happens.
  using PreparedCallback = std::function<void(absl::StatusOr<uint32_t> fetched_tokens)>;
  // How a request enters the queue.
  struct Entry {
    // Begins to prepare the request, which has its place and its position in the queue meanwhile.
    // Called by Submit, on its thread, with the namespace of the prompt's blocks. It must not
    // block. Empty: the request is prepared.
    std::function<void(const NamespaceKey& name_space, PreparedCallback done)> prepare = nullptr;
    // Whether the request has been in the engine before. Such a request is not QUEUE_FULL.
    bool is_again = false;
  };
  // The same for a request that is not prepared, or that has run before.
  absl::Status Submit(GenerateRequest request, TokenCallback on_token, EndCallback on_end,
                      Entry entry);

  // Submits and waits for the end. REQUIRES: the caller is not on the engine's thread.
  absl::StatusOr<GenerateReport> Generate(GenerateRequest request, TokenCallback on_token);

  // Continues in another session after the previous one has ended with its daemon or its lease.
  // Between two steps it maps the pools of `client` instead of the old ones, then destroys the old
  // client. The weights stay, and running requests continue from the tokens that they have. On an
  // error nothing has changed, and `client` is destroyed. Errors: MODEL_MISMATCH; INVALID_ARGUMENT
  // (another layout, or pools elsewhere than the weights); those of the client.
  absl::Status Attach(std::unique_ptr<CacheClient> client);

  // Save the KV of a prefix to a file, and load it again, between two steps (kv_file.h). Both wait.
  // REQUIRES: the caller is not on the engine's thread. Errors: those of SaveKv and LoadKv;
  // CANCELLED if the engine ends.
  absl::StatusOr<KvFileReport> SaveKv(const NamespaceKey& name_space,
                                      absl::Span<const TokenId> tokens, const std::string& path);
  absl::StatusOr<KvFileReport> LoadKv(const NamespaceKey& name_space, const std::string& path);

  // Whether the model's files are as they were at Create. Weights are read from them as long as the
  // engine runs. After an error (DATA_LOSS with the file) no request succeeds any more.
  absl::Status CheckFiles() const override;

  // Checks a request as Submit does. Errors: INVALID_PROMPT (empty, a token outside the vocabulary,
  // or with its new tokens longer than max_position_embeddings), INVALID_COUNT (max_new_tokens or
  // num_samples is 0, too many samples or draft tokens, more beams than sequences run at once, or
  // the cache can never hold a sequence or all beams), INVALID_SAMPLING, UNKNOWN_ADAPTER,
  // FIELD_NOT_SERVED (a namespace with a lora_id: `adapter` names the adapter), KEYS_AND_TOKENS (a
  // keyed namespace, but the engine's prompts are tokens).
  absl::Status Check(const GenerateRequest& request) const override;

  static constexpr uint32_t kMaxSamples = 128;
  static constexpr uint32_t kMaxDraftTokens = 32;

  const ModelConfig& model() const override;
  // For people, for example "qwen3 ... cpu, 2 threads".
  std::string description() const;
  // The self-test's report on the GPU that the engine computes on; nothing on a CPU.
  const std::optional<GpuSelfTestReport>& gpu_report() const;
  // The value that CacheInfo::model_fingerprint must have.
  const std::string& model_fingerprint() const;
  // The adapters that requests can name, in the order of Options::adapters.
  absl::Span<const NamedAdapter> adapters() const override;
  EngineStats Stats() const override;

 private:
  class State;
  explicit Engine(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_ENGINE_H_
