#include "engine/serve/openai/api_json.h"

#include "nlohmann/json.hpp"

namespace pagoda::server {

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pagoda::server
