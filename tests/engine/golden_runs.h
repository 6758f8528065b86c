// Ways to run the goldens' prompts through an engine: at once, in turn, interrupted.
#ifndef PAGODA_TESTS_ENGINE_GOLDEN_RUNS_H_
#define PAGODA_TESTS_ENGINE_GOLDEN_RUNS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/engine.h"
#include "tests/engine/golden.h"
#include "tests/engine/test_cache.h"

namespace pagoda {

struct EngineSetting {
  DType kv_dtype = DType::kFloat32;
  TestCache::Sizes blocks = {.primary_blocks = 128};
  EngineBackend backend = EngineBackend::kAuto;
  uint32_t max_step_tokens = 512;
  uint32_t max_running_sequences = 256;
  Preemption preemption = Preemption::kOffload;
};

inline constexpr uint32_t kGoldenTokensPerBlock = 16;

// Products in fp32, on one thread.
Engine::Options EngineOptionsFor(const GoldenModel& model, const EngineSetting& setting);

// An engine on its cache. `before_copy`: as for TestCache.
struct ServedModel {
  std::unique_ptr<TestCache> cache;
  std::unique_ptr<Engine> engine;
};
ServedModel Serve(const GoldenModel& model, const EngineSetting& setting,
                  std::function<absl::Status(const CopyOrder&)> before_copy = nullptr);

struct GoldenAnswer {
  absl::StatusOr<GenerateReport> report = absl::UnknownError("not ended");
  std::vector<TokenId> ids;
  // Between any logit and the golden's. NaN if one is NaN.
  float worst_logit_difference = 0;
  std::vector<std::vector<float>> logits;
};

// As many tokens as the golden has.
GenerateRequest RequestFor(const Golden& golden);

// Submits all of them so that they run at once, however slow the submission is. Returns the answers
// in the order of the goldens.
std::vector<GoldenAnswer> GenerateAll(Engine& engine, absl::Span<const Golden> goldens);

// Each after the end of the one before.
std::vector<GoldenAnswer> GenerateInTurn(Engine& engine, absl::Span<const Golden> goldens);

// While the first one generates, the second one arrives with a higher priority.
std::vector<GoldenAnswer> GenerateInterrupted(Engine& engine, const Golden& first,
                                              const Golden& second);

}  // namespace pagoda

#endif  // PAGODA_TESTS_ENGINE_GOLDEN_RUNS_H_
