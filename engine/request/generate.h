// Requests to the engine, generated tokens and reports.
#ifndef PAGODA_ENGINE_REQUEST_GENERATE_H_
#define PAGODA_ENGINE_REQUEST_GENERATE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/stopwatch.h"
#include "engine/sampling/sampling.h"
#include "engine/structured/grammar.h"
#include "engine/words/adapter_index.h"
#include "engine/words/rotary_range.h"
#include "manager/api/operation.h"
#include "pools/types.h"

namespace pagoda {

struct GeneratedToken {
  uint32_t sample = 0;
  TokenId token = 0;
  // The token's log probability in the model's own distribution; only if asked for.
  float logprob = 0;
  // The most likely tokens, best first: sampling.top_logprobs of them.
  absl::Span<const TokenLogprob> top_logprobs;
  // [vocab_size], before sampling. Empty if the model's backend chose the token itself, as a GPU
  // does where the request needs nothing but tokens.
  absl::Span<const float> logits;
};

struct GenerateRequest {
  std::vector<TokenId> prompt;
  uint32_t max_new_tokens = 1;  // Per sample.
  // Generating one of these tokens ends a sample; it is the sample's last token. The model's own
  // eos_token_ids stop a sample only if the caller lists them here.
  std::vector<TokenId> stop_tokens;
  NamespaceKey name_space;
  // The name of one of Engine::Options::adapters. Empty: the model alone. The engine adds the
  // adapter's fingerprint to the namespace, as its lora_id.
  std::string adapter;
  SamplingParams sampling;
  // The number of answers. They share the prompt's KV; sample i is drawn with sampling.seed + i.
  uint32_t num_samples = 1;
  // The most draft tokens per step, 0 for none. They are proposed from the sequence's earlier
  // tokens and checked in one pass. The answer often arrives sooner. In fp32 it is the same; other
  // types can round differently.
  uint32_t max_draft_tokens = 0;
  // Beam search (sampling/beam_search.h): the number of beams, at most kMaxBeamWidth; 0 or 1: none.
  // The samples are then the num_samples best hypotheses, best first. Their tokens come when the
  // search has ended, without logits and logprobs.
  uint32_t beam_width = 1;
  float length_penalty = 1.0f;  // Only for a beam search.
  bool early_stopping = false;  // Only for a beam search.
  int32_t priority = 0;         // Higher ones run first, and preempt lower ones.
  // The tenant that asks. Tenants get equal shares of the engine among requests of one priority.
  // The request's blocks are charged to charged(). Empty: no tenant.
  std::string tenant;
  // The bearer token with which the caller asked. An engine over a daemon's cache shows it to the
  // daemon, so that the request runs with the caller's rights. Empty: the caller showed none.
  std::string token;
  // When the caller received the request; the report's times count from it. Unset: at Submit.
  std::optional<SteadyTime> arrival;
  // The peer address of the daemon that has the prompt's blocks. Empty: any.
  std::string fetch_source;
  // The adapter's place. Set by the engine.
  AdapterIndex adapter_index = kNoAdapter;
  // The rotary range of all its sequences. Set by the engine (long_context.h).
  RotaryRange rotary_range = RotaryRange::kShort;
  // Prompt tokens that were brought from other machines for it. Set by the engine.
  uint32_t fetched_tokens = 0;
  // What the answers' text must be (engine/text/model_text.h compiles it); null: anything. The
  // request and the compiler's cache own it together. The model's eos_token_ids end the answers
  // too, besides stop_tokens. All these are allowed only where an answer is complete. Not for a
  // beam search.
  std::shared_ptr<const CompiledGrammar> grammar = nullptr;
  // Called on the engine's thread with each token, after the TokenCallback. True makes the token
  // its sample's last, as if it were in stop_tokens. Empty: never; a beam search has none. Must not
  // block.
  std::function<bool(const GeneratedToken&)> ends_sample;
  // Called on the engine's thread once a step. True ends the generation with CANCELLED. Empty:
  // never. Must not block.
  std::function<bool()> cancelled;

  // The tenant whose quota counts the blocks. It can differ from `tenant`: an operator can work in
  // a tenant's namespace, and a tenant can work in a shared one.
  const std::string& charged() const {
    return name_space.tenant.empty() ? tenant : name_space.tenant;
  }
  bool is_beam_search() const { return beam_width > 1; }
};

inline constexpr uint32_t kMaxBeamWidth = 32;
inline constexpr float kMaxLengthPenalty = 10.0f;

// Called with each generated token, on the engine's thread; the spans are valid during the call.
// Returns false to stop: the generation ends with CANCELLED. Must not block.
using TokenCallback = std::function<bool(const GeneratedToken&)>;

enum class FinishReason { kLength, kStopToken };

struct GenerateReport {
  std::vector<FinishReason> finish_reasons;  // One per sample.
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;  // Prompt tokens whose KV was in the cache.
  // The part of these that was onboarded from a lower tier.
  uint32_t reused_lower_tokens = 0;
  // The part of reused_tokens that was fetched into memory for this request, from disk or from
  // other machines.
  uint32_t fetched_tokens = 0;
  uint32_t generated_tokens = 0;  // Tokens of all samples.
  uint32_t preemptions = 0;       // How often one of its sequences was preempted.
  uint32_t drafted_tokens = 0;
  uint32_t accepted_draft_tokens = 0;
  std::vector<float> beam_scores;  // The scores of a beam search, one per sample.
  absl::Duration queue_time;
  absl::Duration time_to_first_token;  // From the arrival; includes the queue time.
  absl::Duration total_time;

  double tokens_per_second() const;
};

// The one definition of tokens_per_second, for every answer. For one request: the tokens of all
// samples, divided by the time from the end of the queue to the last token, prefill included. For
// requests that arrived together: all their tokens, divided by the time from the first one's start
// to the last one's end. 0 if nothing was generated.
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

#endif  // PAGODA_ENGINE_REQUEST_GENERATE_H_
