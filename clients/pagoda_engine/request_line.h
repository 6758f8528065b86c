// Requests and answers as lines of JSON.
#ifndef PAGODA_CLIENTS_PAGODA_ENGINE_REQUEST_LINE_H_
#define PAGODA_CLIENTS_PAGODA_ENGINE_REQUEST_LINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "clients/pagoda_engine/connected_engine.h"
#include "nlohmann/json.hpp"

namespace pagoda {

// {"id": ..., "prompt": [1, 2], "max_new_tokens": 20, "stop_tokens": [3], "cache_salt": "text",
// "temperature": 0.7, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 7,
// "num_samples": 2, "max_draft_tokens": 4, "priority": 1}; only the prompt must be there.
struct RequestLine {
  nlohmann::ordered_json id;  // As it came, a string or a number; null where there is none.
  // Errors: INVALID_ARGUMENT with the field that is wrong, or unknown.
  absl::StatusOr<GenerateRequest> request;
};
RequestLine ParseRequestLine(const std::string& line, uint32_t default_max_new_tokens);

// What a program is told of a generation, without an id: tokens and finish_reason of the first
// sample, those of all as `samples` where there are several, prompt_tokens, reused_tokens,
// reused_secondary_tokens, generated_tokens, time_to_first_token_ms, queue_ms, total_ms,
// tokens_per_second, preemptions, drafted_tokens, accepted_draft_tokens.
nlohmann::ordered_json GeneratedToJson(const Generated& generated);

// {"id": ..., and what GeneratedToJson says, or "error": {"reason": "...", "message": "..."}}.
std::string AnswerLine(const nlohmann::ordered_json& id,
                       const absl::StatusOr<Generated>& generated);

// "length" or "stop token".
std::string FinishText(FinishReason reason);

}  // namespace pagoda

#endif  // PAGODA_CLIENTS_PAGODA_ENGINE_REQUEST_LINE_H_
