// JSON in the format of OpenAI's API.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_JSON_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_JSON_H_

#include <string>

#include "nlohmann/json_fwd.hpp"

namespace pagoda::server {

using Json = nlohmann::ordered_json;

// The JSON text. Bytes that are not UTF-8 become U+FFFD.
std::string TextOf(const Json& json);

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_JSON_H_
