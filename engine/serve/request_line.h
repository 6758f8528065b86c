// Requests and answers as lines of JSON.
#ifndef PAGODA_ENGINE_SERVE_REQUEST_LINE_H_
#define PAGODA_ENGINE_SERVE_REQUEST_LINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/serve/connected_engine.h"
#include "nlohmann/json.hpp"

namespace pagoda {

// {"id": ..., "prompt": [1, 2], "max_new_tokens": 20, "stop_tokens": [3], "cache_salt": "text",
// "temperature": 0.7, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 7,
// "num_samples": 2, "max_draft_tokens": 4, "priority": 1, "beam_width": 4, "length_penalty": 0.8,
// "early_stopping": true, "adapter": "name"}. Only the prompt is required.
struct RequestLine {
  nlohmann::ordered_json id;  // The request's id, a string or a number; null if there is none.
  // Errors: INVALID_ARGUMENT, which names the wrong or unknown field.
  absl::StatusOr<GenerateRequest> request;
};
RequestLine ParseRequestLine(const std::string& line, uint32_t default_max_new_tokens);

// A generation as JSON, without an id: tokens and finish_reason of the first sample, prompt_tokens,
// reused_tokens, reused_secondary_tokens, generated_tokens, time_to_first_token_ms, queue_ms,
// total_ms, tokens_per_second, preemptions, drafted_tokens, accepted_draft_tokens. With several
// samples, `samples` holds the tokens and finish_reason of each one. After a beam search,
// `beam_scores` holds the score of each sample.
nlohmann::ordered_json GeneratedToJson(const Generated& generated);

// {"id": ..., followed by the members of GeneratedToJson, or by "error": {"reason": "...",
// "message": "..."}}.
std::string AnswerLine(const nlohmann::ordered_json& id,
                       const absl::StatusOr<Generated>& generated);

// "length" or "stop token".
std::string FinishText(FinishReason reason);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_REQUEST_LINE_H_
