// The part of a chat request that the model's chat template is told.
#ifndef PAGODA_SERVER_OPENAI_API_CONVERSATION_H_
#define PAGODA_SERVER_OPENAI_API_CONVERSATION_H_

#include "absl/strings/string_view.h"
#include "server/openai/api_fields.h"
#include "server/openai/api_request.h"

namespace pagoda::server {

// How deep a request can nest: the schemas of tools are the deepest part.
inline constexpr int kMaxBodyDepth = 32;
inline constexpr size_t kMaxTools = 128;
// The members of one object of a chat request.
inline constexpr size_t kMaxMembers = 4096;

// Reads messages, tools, tool_choice and chat_template_kwargs. `body` is the text of the request, a
// valid JSON object: templates write a tool's keys in its order. Errors of `fields`:
// INVALID_ARGUMENT and FIELD_NOT_SERVED, as in ParseApiRequest.
void ReadConversation(ApiFields& fields, absl::string_view body, ApiRequest& request);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_OPENAI_API_CONVERSATION_H_
