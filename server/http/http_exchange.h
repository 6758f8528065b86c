// A request that brings a body, and an answer that may come bit by bit.
#ifndef PAGODA_SERVER_HTTP_HTTP_EXCHANGE_H_
#define PAGODA_SERVER_HTTP_HTTP_EXCHANGE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace pagoda::server {

struct HttpRequest {
  std::string query;                         // "limit=10&since=7", as it was sent.
  std::string host;                          // The header Host, with its port.
  std::optional<std::string> origin;         // The header, where there is one: a browser's page.
  std::optional<std::string> authorization;  // The header, where there is one.
  std::string proxy_header;  // "Via": a header there that only proxies add; "" where there is none.
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Besides those that all answers have.
};

// What every answer says.
inline constexpr char kHttpCommonHeaders[] =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n";

// The answer's status line and headers, as they are sent, up to the empty line before its body.
std::string HeadOf(const HttpResponse& response);

// One POST. Exactly one of Answer and BeginStream is called, once. Thread-compatible.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Called once at most. Errors: MESSAGE_TOO_LARGE, DEADLINE_EXCEEDED (it takes longer than
  // `time`), CANCELLED (the client went away, or sent less than it said).
  virtual absl::StatusOr<std::string> ReadBody(size_t max_bytes, absl::Duration time) = 0;

  virtual void Answer(const HttpResponse& response) = 0;

  // An answer of the status 200 that goes on until EndStream. False, of these and of Write: the
  // client does not take it any more.
  virtual bool BeginStream(const std::string& content_type) = 0;
  virtual bool Write(absl::string_view bytes) = 0;
  virtual void EndStream() = 0;

  // Whether the client still waits. One that has closed its side of the connection does not.
  virtual bool ClientIsThere() = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_EXCHANGE_H_
