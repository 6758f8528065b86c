#ifndef PAGODA_ENGINE_SERVE_LOCAL_LOCAL_ENGINE_H_
#define PAGODA_ENGINE_SERVE_LOCAL_LOCAL_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/engine_options.h"
#include "engine/engine.h"
#include "engine/serve/local/local_cache.h"
#include "pools/layout.h"

namespace pagoda {

// The bundled engine with its KV in this process. Thread-safe.
class LocalEngine {
 public:
  struct Options {
    Engine::Options engine;  // Without gpu_report.
    KvMode kv = KvMode::kPaged;
    DType kv_dtype = DType::kFloat32;
    // The most tokens of a prompt and its answer. 0: 4,096, or the model's own limit if that is
    // less. A larger number than the model's limit is lowered to it.
    uint32_t context = 0;
    uint32_t cached_tokens = 0;      // Paged: how many tokens the pool holds; at least the context.
    uint32_t tokens_per_block = 16;  // Paged.
    uint32_t max_sequences = 1;      // Flat and basic: how many there can be at once.
  };

  // Loads the model. With the backend kAuto it computes on the first GPU if the self-test finds
  // kernels for the model there, otherwise on the CPU. Errors: those of Engine::CacheSpecForModel,
  // LocalCache and Engine::Create; INVALID_ARGUMENT for kFlat and kBasic on a GPU.
  static absl::StatusOr<std::unique_ptr<LocalEngine>> Create(Options options);

  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }
  uint32_t context() const { return context_; }
  // For people: "Qwen3ForCausalLM on cpu, 2 threads, ..., kv paged of float32, context 4,096
  // tokens".
  std::string description() const;

 private:
  LocalEngine(const Options& options, uint32_t context)
      : kv_(options.kv), kv_dtype_(options.kv_dtype), context_(context) {}

  const KvMode kv_;
  const DType kv_dtype_;
  const uint32_t context_;
  std::unique_ptr<LocalCache> cache_;  // With kPaged.
  std::unique_ptr<Engine> engine_;     // Its client uses cache_.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_LOCAL_LOCAL_ENGINE_H_
