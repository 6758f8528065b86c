// The daemon's small HTTP side, for machines that scrape and probe.
#ifndef PAGODA_SERVER_HTTP_SERVER_H_
#define PAGODA_SERVER_HTTP_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/listen_address.h"

struct mg_context;
struct mg_connection;

namespace pagoda::server {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers GET and HEAD of exact paths on threads of its own; any other path is 404, any other
// method 405.
class HttpServer {
 public:
  // By path, "/metrics". Called on the server's threads, several at a time.
  using Routes = std::map<std::string, std::function<HttpResponse()>>;

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
  HttpResponse Respond(const std::string& method, const std::string& path) const;

  const Routes routes_;
  TcpAddress address_;
  mg_context* context_ = nullptr;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_SERVER_H_
