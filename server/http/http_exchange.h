// HTTP requests and responses, and the exchange of a request's body and a streamed answer.
#ifndef PAGODA_SERVER_HTTP_HTTP_EXCHANGE_H_
#define PAGODA_SERVER_HTTP_HTTP_EXCHANGE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pagoda::server {

struct HttpRequest {
  std::string rest;                          // What a route ending in "*" matched there.
  std::string query;                         // The query as sent: "limit=10&since=7".
  std::string host;                          // The header Host, with its port.
  std::optional<std::string> origin;         // The header Origin, which a browser's page sends.
  std::optional<std::string> authorization;  // The header Authorization.
  std::string accept_encoding;               // The header Accept-Encoding, or "".
  std::string proxy_header;                  // The name of a header that only proxies add, or "".
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Besides the common headers.
};

// The headers of every answer.
inline constexpr char kHttpCommonHeaders[] =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n";

// The answer's status line and headers as sent, including the empty line before the body.
std::string HeadOf(const HttpResponse& response);

// The answer to one POST request. The route calls either Answer or BeginStream, once.
// Thread-compatible.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual void Answer(const HttpResponse& response) = 0;

  // Begins an answer with status 200, which ends with EndStream. BeginStream and Write return false
  // if the client no longer takes the answer.
  virtual bool BeginStream(const std::string& content_type) = 0;
  virtual bool Write(absl::string_view bytes) = 0;
  virtual void EndStream() = 0;

  // Whether the client still waits. A client that has closed its side of the connection does not.
  virtual bool ClientIsThere() = 0;
};

// One POST request whose head was admitted, until it is answered. Destroyed without Run if the
// client leaves before its body is complete. Thread-compatible.
class HttpPost {
 public:
  virtual ~HttpPost() = default;

  // Called on the server's loop, before `bytes` more of the body are kept. Must return at once. An
  // error is what Run gets instead of the body.
  virtual absl::Status Keep(size_t bytes) = 0;

  // Called once, on a thread that it may occupy for a long time. `body` is complete, or an error:
  // that of Keep, MESSAGE_TOO_LARGE, INVALID_ARGUMENT (bad chunks), or DEADLINE_EXCEEDED.
  virtual void Run(absl::StatusOr<std::string> body, HttpExchange& exchange) = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_EXCHANGE_H_
