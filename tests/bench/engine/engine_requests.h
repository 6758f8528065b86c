// The engine's figures for whole requests: how much reuse saves, and how much the cache costs.
#ifndef PAGODA_TESTS_BENCH_ENGINE_ENGINE_REQUESTS_H_
#define PAGODA_TESTS_BENCH_ENGINE_ENGINE_REQUESTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "engine/sampling/sampling.h"
#include "tests/bench/engine/random_model.h"

namespace pagoda {
class Engine;
class TestCache;
}  // namespace pagoda

namespace pagoda::bench {

// A cache in this process, KV in bf16, and an engine on it.
class EngineRequests {
 public:
  struct Options {
    uint32_t threads = 2;
    bool smoke = false;  // Small numbers, to check that the figures are there.
  };
  EngineRequests(const Options& options, const RandomModelShape& shape, const std::string& dir);
  ~EngineRequests();

  // ttft_cached_over_uncached, ttft_host_over_uncached: the time to the first token of a prompt if
  // all but its last 16 tokens are cached, in the primary or in the lower tier. The yardstick
  // is a prompt without any cached tokens.
  void PrintTimesToFirstToken(bool cached, bool host);
  // bookkeeping_share: the time of a step of 16 sequences that is neither the model nor choosing
  // tokens, that is, the scheduler and the calls of the cache. The yardstick is the whole step.
  void PrintBookkeeping();
  // sampling_share: the time that a step of 16 sequences at temperature 0.8, top-k 50 and top-p
  // 0.95 takes to choose tokens. The yardstick is the rest of the step.
  void PrintSampling();
  // kv_waste_share: room of 16 mixed requests that holds no token, next to all of their room.
  void PrintWaste();

 private:
  // Medians in microseconds of a step of 16 sequences, including the steps of prompts.
  struct StepParts {
    double bookkeeping_us;  // Everything except the model and choosing tokens.
    double sampling_us;
    double step_us;
  };
  void RunBatch(const SamplingParams& sampling, uint32_t new_tokens);
  StepParts MeasureSteps(const SamplingParams& sampling);

  const Options options_;
  const uint32_t vocab_size_;
  std::unique_ptr<TestCache> cache_;
  std::unique_ptr<Engine> engine_;
  uint64_t prompts_ = 0;
};

}  // namespace pagoda::bench

#endif  // PAGODA_TESTS_BENCH_ENGINE_ENGINE_REQUESTS_H_
