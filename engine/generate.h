// What is asked of the engine, and what it answers.
#ifndef PAGODA_ENGINE_GENERATE_H_
#define PAGODA_ENGINE_GENERATE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/schedule/sampling.h"
#include "engine/schedule/stopwatch.h"
#include "manager/operation.h"
#include "pools/types.h"

namespace pagoda {

struct GeneratedToken {
  uint32_t sample = 0;
  TokenId token = 0;
  float logprob = 0;  // Of the token, in the model's own distribution; if asked for.
  absl::Span<const TokenLogprob> top_logprobs;  // As many as sampling.top_logprobs, best first.
  absl::Span<const float> logits;               // [vocab_size] The model's own.
};

struct GenerateRequest {
  std::vector<TokenId> prompt;
  uint32_t max_new_tokens = 1;  // Of each sample.
  // The first of these that is generated is a sample's last token. The model's own eos_token_ids
  // stop only where the caller puts them here.
  std::vector<TokenId> stop_tokens;
  NamespaceKey name_space;
  SamplingParams sampling;
  // As many answers, which share the prompt's KV; sample i is drawn with sampling.seed + i.
  uint32_t num_samples = 1;
  // At most as many tokens are guessed a step, from what the sequence has said before, and checked
  // at once; the answer is the same, and often sooner there. 0: none.
  uint32_t max_draft_tokens = 0;
  int32_t priority = 0;  // Higher ones go first, and take the room of lower ones.
  // Whose it is: those of one priority get like shares of the engine, and what it holds of the
  // cache is charged to it. Empty: nobody's.
  std::string tenant;
  // When the caller was asked: times in the report are from then on. Unset: when it is submitted.
  std::optional<SteadyTime> arrival;
  // Asked on the engine's thread about each token, behind the TokenCallback: true makes it its
  // sample's last, as if it stood in stop_tokens. Empty: none is. Must not block.
  std::function<bool(const GeneratedToken&)> ends_sample;
  // Asked on the engine's thread, once a step. True ends the generation with CANCELLED. Empty:
  // nobody cancels. Must not block.
  std::function<bool()> cancelled;

  // Whose quota its blocks are in: an operator may work in a tenant's namespace, and a tenant in
  // one that it shares.
  const std::string& charged() const {
    return name_space.tenant.empty() ? tenant : name_space.tenant;
  }
};

// Called with each generated token, on the engine's thread; the spans are valid during the call.
// Returns false to stop: the generation ends with CANCELLED. Must not block.
using TokenCallback = std::function<bool(const GeneratedToken&)>;

enum class FinishReason { kLength, kStopToken };

struct GenerateReport {
  std::vector<FinishReason> finish_reasons;  // One a sample.
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;            // Prompt tokens whose KV was in the cache.
  uint32_t reused_secondary_tokens = 0;  // Of these, those that came up from the secondary tier.
  // Of reused_tokens, those that came into memory from disk for this request.
  uint32_t fetched_tokens = 0;
  uint32_t generated_tokens = 0;  // Of all samples.
  uint32_t preemptions = 0;       // How often one of its sequences lost its room for a time.
  uint32_t drafted_tokens = 0;
  uint32_t accepted_draft_tokens = 0;
  absl::Duration queue_time;
  absl::Duration time_to_first_token;  // From the arrival; the queue is in it.
  absl::Duration total_time;

  double tokens_per_second() const;
};

// What is generated a second once it has begun: the tokens of all samples by the time from the end
// of the queue to the last token, the prompt's prefill included. Of requests that came at once: the
// tokens of all by the time from the first one's begin to the last one's end. 0 where nothing was
// generated. The one definition of tokens_per_second, in whatever answer.
inline double TokensPerSecond(absl::Span<const GenerateReport> reports) {
  absl::Duration begin = absl::InfiniteDuration();
  absl::Duration end;
  uint64_t generated = 0;
  for (const GenerateReport& report : reports) {
    begin = std::min(begin, report.queue_time);
    end = std::max(end, report.total_time);
    generated += report.generated_tokens;
  }
  return generated > 0 && end > begin
             ? static_cast<double>(generated) / absl::ToDoubleSeconds(end - begin)
             : 0;
}

inline double GenerateReport::tokens_per_second() const {
  return TokensPerSecond(absl::MakeConstSpan(this, 1));
}

}  // namespace pagoda

#endif  // PAGODA_ENGINE_GENERATE_H_
