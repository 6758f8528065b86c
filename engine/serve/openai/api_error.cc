#include "engine/serve/openai/api_error.h"

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "nlohmann/json.hpp"

namespace pagoda::server {
namespace {

constexpr char kFieldUrl[] = "pagoda/field";
constexpr char kInvalidRequest[] = "invalid_request_error";

struct ErrorKind {
  int http_status;
  const char* type;
  const char* code;  // Null: the reason's name.
};

ErrorKind ErrorKindOf(const absl::Status& status) {
  switch (ReasonOf(status)) {
    case Reason::kMessageTooLarge:
      return {413, kInvalidRequest, "request_too_large"};
    case Reason::kFieldNotServed:
      return {400, kInvalidRequest, "unsupported_parameter"};
    case Reason::kUnauthenticated:
      return {401, "authentication_error", "invalid_api_key"};
    case Reason::kNoEngine:
      return {404, kInvalidRequest, "model_not_found"};
    case Reason::kDraining:
      return {503, "server_error", nullptr};
    default:
      break;
  }
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kCancelled:
      return {400, kInvalidRequest, nullptr};
    case absl::StatusCode::kPermissionDenied:
      return {403, "permission_error", nullptr};
    case absl::StatusCode::kNotFound:
      return {404, kInvalidRequest, "model_not_found"};
    case absl::StatusCode::kDeadlineExceeded:
      return {408, kInvalidRequest, "timeout"};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_error", nullptr};
    case absl::StatusCode::kUnavailable:
      return {503, "server_error", nullptr};
    default:
      return {500, "server_error", nullptr};
  }
}

Json JsonOf(const absl::Status& status, const ErrorKind& kind) {
  const auto field = status.GetPayload(kFieldUrl);
  const Reason reason = ReasonOf(status);
  const std::string name = reason == Reason::kNone ? absl::StatusCodeToString(status.code())
                                                   : std::string(ReasonName(reason));
  return {{"message", std::string(status.message())},
          {"type", kind.type},
          {"param", field.has_value() ? Json(std::string(*field)) : Json(nullptr)},
          {"code", kind.code != nullptr ? kind.code : absl::AsciiStrToLower(name)}};
}

HttpResponse ResponseOf(const absl::Status& status, const ErrorKind& kind) {
  HttpResponse response{.status = kind.http_status,
                        .content_type = "application/json",
                        .body = TextOf({{"error", JsonOf(status, kind)}}),
                        .headers = {}};
  if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (response.status == 429) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

absl::Status AboutField(absl::Status status, const std::string& field) {
  status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

absl::Status BadField(const std::string& field, absl::string_view what) {
  return AboutField(MakeError(Reason::kInvalidArgument, absl::StrCat(field, ": ", what)), field);
}

absl::Status FieldNotServed(const std::string& field, absl::string_view what) {
  return AboutField(MakeError(Reason::kFieldNotServed, absl::StrCat(field, " ", what)), field);
}

absl::Status UnknownModel(const std::string& asked, const std::string& served) {
  return AboutField(
      absl::NotFoundError(absl::StrCat("the model '", asked,
                                       "' is not available; this daemon serves '", served, "'")),
      "model");
}

Json ApiErrorJson(const absl::Status& status) { return JsonOf(status, ErrorKindOf(status)); }

HttpResponse ApiErrorResponse(const absl::Status& status) {
  return ResponseOf(status, ErrorKindOf(status));
}

HttpResponse WrongHostResponse(const absl::Status& status) {
  return ResponseOf(status, {421, kInvalidRequest, nullptr});
}

}  // namespace pagoda::server
