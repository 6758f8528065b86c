// The part of a chat request that the model's chat template receives.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_CONVERSATION_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_CONVERSATION_H_

#include <cstddef>

#include "engine/serve/openai/api_fields.h"
#include "engine/serve/openai/api_reader.h"
#include "engine/serve/openai/api_request.h"

namespace pagoda::server {

inline constexpr size_t kMaxTools = 128;

// Reads messages, tools, tool_choice and chat_template_kwargs. `body` is the object of `fields`;
// this moves its messages out. Errors of `fields`: INVALID_ARGUMENT and FIELD_NOT_SERVED, as in
// ParseApiRequest; those of the reader, which reads the arguments of calls.
void ReadConversation(ApiFields& fields, ApiReader& reader, ApiJson& body, ApiRequest& request);

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_CONVERSATION_H_
