// The bundled engine: generates tokens with a model from a Hugging Face directory or a GGUF file,
// its KV in the cache's blocks.
#ifndef PAGODA_ENGINE_ENGINE_H_
#define PAGODA_ENGINE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/generate.h"
#include "engine/kv_file.h"
#include "engine/model/cpu_backend.h"
#include "engine/model/gpu_report.h"
#include "engine/schedule/sample.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/waiting_places.h"
#include "manager/cache_client.h"
#include "pools/layout.h"

namespace pagoda {

using EngineStats = SchedulerStats;

// One model. Requests run side by side, on a thread of the engine's own (schedule/scheduler.h).
// Thread-safe. Its end ends the requests that are left with CANCELLED.
class Engine {
 public:
  struct Options {
    std::string model_dir;
    EngineBackend backend = EngineBackend::kAuto;
    GpuAttention gpu_attention = GpuAttention::kAuto;
    // Of the device that the client's pools lie on, where the self-test has run for this model and
    // these options already. Else Create runs it there (TestGpu).
    std::optional<GpuSelfTestReport> gpu_report;
    CpuBackendOptions cpu;  // Its `compute` is the GPU's, too.
    Scheduler::Options scheduler;
    // Requests that have not begun: more than so many, or with more bytes, are refused. The tenants
    // share them, by GenerateRequest::tenant; names that are not here count as the first one.
    WaitingPlaces::Limits waiting;
    std::vector<std::string> tenants = {""};
  };

  // The KV layout that the model in `model_dir` needs: what the daemon makes its pools of, before
  // there is an engine. Errors: INVALID_CHECKPOINT.
  static absl::StatusOr<CacheSpec> CacheSpecForModel(const std::string& model_dir,
                                                     uint32_t tokens_per_block, DType kv_dtype);

  // Loads the checkpoint and maps the client's pools. `client` is the engine's own session; its
  // cache must have the layout and the fingerprint that CacheSpecForModel gives, and primary pools
  // that the backend reaches. Errors: INVALID_CHECKPOINT (names the file, tensor or field),
  // MODEL_MISMATCH, INVALID_ARGUMENT; those of the client and of MakeBackend, among them
  // FAILED_PRECONDITION where the self-test leaves no kernels on the GPU that the pools lie on.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Options options,
                                                        std::unique_ptr<CacheClient> client);
  ~Engine();

  // Takes a request in and returns. `on_token` and then, once, `on_end` are called on the engine's
  // thread; they may submit, and must not wait for the engine. Whatever the outcome, the sequences'
  // blocks are given back before `on_end`; what was computed stays cached. Errors: those of Check,
  // QUEUE_FULL (as much of the tenant waits as may) and INVALID_COUNT (so many bytes may never
  // wait); then neither is called. The report's,
  // through `on_end`: BLOCKS_EXHAUSTED (others hold the cache), TENANT_QUOTA_EXCEEDED,
  // TOO_MANY_SEQUENCES and SEQUENCE_BYTES_EXHAUSTED (the tenant's other clients hold what it may
  // have), CANCELLED (`on_token` or `request.cancelled` said so, or the engine ended); the client's
  // own.
  absl::Status Submit(GenerateRequest request, TokenCallback on_token, EndCallback on_end);

  // Submits and waits for the end. REQUIRES: not on the engine's thread.
  absl::StatusOr<GenerateReport> Generate(GenerateRequest request, TokenCallback on_token);

  // Goes on in another session, where the one before is over: with its daemon, or with its lease.
  // Maps the pools of `client` in the place of the old ones, between two steps, and then destroys
  // the old client; the weights stay, and requests under way go on from the tokens that they have.
  // On an error nothing has changed, and `client` is destroyed. Errors: MODEL_MISMATCH,
  // INVALID_ARGUMENT (a cache of another layout, or elsewhere than the weights); those of the
  // client.
  absl::Status Attach(std::unique_ptr<CacheClient> client);

  // The KV of a prefix to a file and back, between two steps (kv_file.h). They wait. REQUIRES: not
  // on the engine's thread. Errors: those of SaveKv and LoadKv; CANCELLED where the engine ends.
  absl::StatusOr<KvFileReport> SaveKv(const NamespaceKey& name_space,
                                      absl::Span<const TokenId> tokens, const std::string& path);
  absl::StatusOr<KvFileReport> LoadKv(const NamespaceKey& name_space, const std::string& path);

  // Whether Submit would refuse the request: INVALID_PROMPT (empty, a token outside the vocabulary,
  // longer with its new tokens than max_position_embeddings), INVALID_COUNT (max_new_tokens or
  // num_samples is 0, too many samples or drafts, or the cache can never hold a sequence),
  // INVALID_SAMPLING, FIELD_NOT_SERVED (an adapter: the engine has the base model alone),
  // KEYS_AND_TOKENS (a keyed namespace: its prompts are tokens).
  absl::Status Check(const GenerateRequest& request) const;

  static constexpr uint32_t kMaxSamples = 128;
  static constexpr uint32_t kMaxDraftTokens = 32;

  const ModelConfig& model() const;
  // For people: "qwen3 ... cpu, 2 threads".
  std::string description() const;
  // What the self-test has found of the GPU that the engine computes on; nothing on a CPU.
  const std::optional<GpuSelfTestReport>& gpu_report() const;
  // What CacheInfo::model_fingerprint has to be.
  const std::string& model_fingerprint() const;
  EngineStats Stats() const;

 private:
  class State;
  explicit Engine(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_ENGINE_H_
