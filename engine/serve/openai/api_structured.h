#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_STRUCTURED_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_STRUCTURED_H_

#include "absl/strings/string_view.h"
#include "engine/serve/openai/api_fields.h"
#include "engine/serve/openai/api_request.h"

namespace pagoda::server {

// Reads what the answers must be: OpenAI's `response_format`, or one of vLLM's `guided_json`,
// `guided_regex` and `guided_grammar`. `body` is the text of the request, a valid JSON object.
void ReadStructured(ApiFields& fields, absl::string_view body, ApiRequest& request);

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_STRUCTURED_H_
