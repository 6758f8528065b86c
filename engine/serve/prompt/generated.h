// The whole answer to a request.
#ifndef PAGODA_ENGINE_SERVE_PROMPT_GENERATED_H_
#define PAGODA_ENGINE_SERVE_PROMPT_GENERATED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/generator.h"
#include "nlohmann/json.hpp"

namespace pagoda {

struct Generated {
  std::vector<std::vector<TokenId>> tokens;  // By sample.
  GenerateReport report;
};

// Submits and waits for the end. Errors: those of Generator::Submit and of the report.
absl::StatusOr<Generated> GenerateAll(Generator& engine, GenerateRequest request);

// A generation as JSON, without an id: tokens and finish_reason of the first sample, prompt_tokens,
// reused_tokens, reused_lower_tokens, generated_tokens, time_to_first_token_ms, queue_ms,
// total_ms, tokens_per_second, preemptions, drafted_tokens, accepted_draft_tokens. With several
// samples, `samples` holds the tokens and finish_reason of each one. After a beam search,
// `beam_scores` holds the score of each sample.
nlohmann::ordered_json GeneratedToJson(const Generated& generated);

// "length" or "stop token".
std::string FinishText(FinishReason reason);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_PROMPT_GENERATED_H_
