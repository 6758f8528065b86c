// Requests and answers as lines of JSON.
#ifndef PAGODA_ENGINE_SERVE_RUN_REQUEST_LINE_H_
#define PAGODA_ENGINE_SERVE_RUN_REQUEST_LINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/serve/prompt/generated.h"
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

// {"id": ..., followed by the members of GeneratedToJson, or by "error": {"reason": "...",
// "message": "..."}}.
std::string AnswerLine(const nlohmann::ordered_json& id,
                       const absl::StatusOr<Generated>& generated);

}  // namespace pagoda

#endif  // PAGODA_ENGINE_SERVE_RUN_REQUEST_LINE_H_
