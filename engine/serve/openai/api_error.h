// Errors in the format of OpenAI's API.
#ifndef PAGODA_ENGINE_SERVE_OPENAI_API_ERROR_H_
#define PAGODA_ENGINE_SERVE_OPENAI_API_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/serve/openai/api_json.h"
#include "server/http/http_exchange.h"

namespace pagoda::server {

// INVALID_ARGUMENT with the message "FIELD: WHAT", such as "temperature: ...". The answer's `param`
// names the field.
absl::Status BadField(const std::string& field, absl::string_view what);
// FIELD_NOT_SERVED.
absl::Status FieldNotServed(const std::string& field, absl::string_view what = "is not served");
// The same error about a field; OK stays OK.
absl::Status AboutField(absl::Status status, const std::string& field);
// NOT_FOUND: the request names another model.
absl::Status UnknownModel(const std::string& asked, const std::string& served);

// {"message", "type", "param", "code"}.
Json ApiErrorJson(const absl::Status& status);
// {"error": {...}} with the HTTP status for the reason: 400, 401, 403, 404, 408, 413, 421, 429
// (with Retry-After), 500, 503.
HttpResponse ApiErrorResponse(const absl::Status& status);
// 421: the request names a host that is not this machine.
HttpResponse WrongHostResponse(const absl::Status& status);

}  // namespace pagoda::server

#endif  // PAGODA_ENGINE_SERVE_OPENAI_API_ERROR_H_
