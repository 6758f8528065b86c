// Chooses a step's tokens on several threads.
#ifndef PAGODA_ENGINE_SAMPLING_BATCH_SAMPLER_H_
#define PAGODA_ENGINE_SAMPLING_BATCH_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/sampling/beam_search.h"
#include "engine/sampling/sampling.h"
#include "engine/structured/grammar.h"
#include "engine/words/token_draw.h"
#include "kernels/execution/thread_pool.h"

namespace pagoda {

struct ChosenToken {
  TokenId token = 0;
  // Set if the sampling's top_logprobs is set: see Sampler::Logprobs.
  float logprob = 0;
  std::vector<TokenLogprob> top_logprobs;
  bool ends = false;  // The answer's grammar allows nothing behind it.
};

// The choice of one sequence in a step: a token behind `tokens`. If that token equals the first
// draft token, a token behind it too, and so on.
struct SamplingTask {
  SamplingParams sampling;
  absl::Span<const float> logits;  // [1 + draft_tokens.size()][vocab_size]
  // [1 + draft_tokens.size()], or empty: tokens that the model's backend has chosen
  // (ModelOutput::tokens). The logits of their rows are not read.
  absl::Span<const uint32_t> drawn = {};
  absl::Span<const TokenId> tokens;
  absl::Span<const TokenId> draft_tokens;
  // If not 0, no token is chosen: the task ranks the candidates of a beam of this search's width.
  uint32_t beam_width = 0;
  absl::Span<const TokenId> stop_tokens;  // The stop tokens of the beam search, in ascending order.
  std::vector<BeamSearch::Candidate> candidates =
      {};  // The beam's, as BeamSearch::Advance takes them.
  // If not null, it allows each chosen token, and has accepted all of them afterwards.
  GrammarMatcher* matcher = nullptr;
  // The result: 1 to 1 + draft_tokens.size() tokens, or fewer if one of the logits used is NaN.
  std::vector<ChosenToken> chosen;
  bool logits_are_numbers = true;
  absl::Status status = absl::OkStatus();  // The matcher's status.

  bool is_drawn(size_t row) const { return !drawn.empty() && drawn[row] != kNotDrawn; }
};

// Thread-compatible.
class BatchSampler {
 public:
  // Null `threads`: only the caller's thread works. Otherwise `threads` outlives this.
  explicit BatchSampler(kernels::cpu::ThreadPool* threads);

  // Fills in `chosen`, or `candidates`, of each task. A token depends only on its own task.
  void Run(absl::Span<SamplingTask> tasks);

 private:
  static void Choose(Sampler& sampler, SamplingTask& task);
  static void RankCandidates(Sampler& sampler, SamplingTask& task);

  kernels::cpu::ThreadPool* const threads_;
  std::vector<Sampler> samplers_;  // By worker.
};

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SAMPLING_BATCH_SAMPLER_H_
