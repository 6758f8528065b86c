// The daemon's small HTTP side: for machines that scrape and probe, and for the status page.
#ifndef PAGODA_SERVER_HTTP_SERVER_H_
#define PAGODA_SERVER_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/listen_address.h"

struct mg_context;
struct mg_connection;

namespace pagoda::server {

// What a route is asked: a GET, or a HEAD, whose answer goes without its body.
struct HttpRequest {
  std::string query;                         // "limit=10&since=7", as it was sent.
  std::string host;                          // The header Host, with its port.
  std::optional<std::string> authorization;  // The header, where there is one.
};

// The value of a number in the query, `otherwise` where it is not there. Errors: INVALID_ARGUMENT
// for what is no number from 0 to 2^64 - 1.
absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name,
                                     uint64_t otherwise);

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // Besides those that all answers have.
};

// Answers GET and HEAD of exact paths on threads of its own; any other path is 404, any other
// method 405. A connection has one request. A client that reads slowly keeps its thread for a
// second.
class HttpServer {
 public:
  // By path, "/metrics". Called on the server's threads, several at a time.
  using Routes = std::map<std::string, std::function<HttpResponse(const HttpRequest&)>>;

  // Errors: INVALID_ARGUMENT where the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const TcpAddress& address,
                                                           Routes routes);
  // Waits for requests that run.
  ~HttpServer();

  // With the port that was taken where the address asked for any.
  const TcpAddress& address() const { return address_; }

 private:
  explicit HttpServer(Routes routes) : routes_(std::move(routes)) {}

  // Answers a request. The status: civetweb has nothing more to do.
  static int Handle(mg_connection* connection);
  HttpResponse Respond(const std::string& method, const std::string& path,
                       const HttpRequest& request) const;

  const Routes routes_;
  TcpAddress address_;
  mg_context* context_ = nullptr;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_SERVER_H_
