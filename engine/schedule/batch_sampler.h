// A step's tokens, chosen on several threads.
#ifndef PAGODA_ENGINE_SCHEDULE_BATCH_SAMPLER_H_
#define PAGODA_ENGINE_SCHEDULE_BATCH_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/schedule/sampling.h"
#include "kernels/cpu/thread_pool.h"

namespace pagoda {

struct ChosenToken {
  TokenId token = 0;
  // Where the sampling's top_logprobs is set: see Sampler::Logprobs.
  float logprob = 0;
  std::vector<TokenLogprob> top_logprobs;
};

// What one sequence has to choose in a step: a token behind `tokens`, and where that is the first
// of the drafts, one behind it, and so on.
struct SamplingTask {
  SamplingParams sampling;
  absl::Span<const float> logits;  // [1 + drafts][vocab_size]
  absl::Span<const TokenId> tokens;
  absl::Span<const TokenId> draft_tokens;
  // The result: 1 to 1 + drafts, or where one of the logits that count is NaN, fewer.
  std::vector<ChosenToken> chosen;
  bool logits_are_numbers = true;
};

// Thread-compatible.
class BatchSampler {
 public:
  // On the caller's thread alone where `threads` is null; else it outlives this.
  explicit BatchSampler(kernels::cpu::ThreadPool* threads);

  // Fills in `chosen` of each task. A token depends on its own task alone.
  void Run(absl::Span<SamplingTask> tasks);

 private:
  static void Choose(Sampler& sampler, SamplingTask& task);

  kernels::cpu::ThreadPool* const threads_;
  std::vector<Sampler> samplers_;  // By worker.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SCHEDULE_BATCH_SAMPLER_H_
