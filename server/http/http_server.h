// The daemon's small HTTP side: for machines that scrape and probe, and for the status page.
#ifndef PAGODA_SERVER_HTTP_HTTP_SERVER_H_
#define PAGODA_SERVER_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/http/http_exchange.h"
#include "server/listen_address.h"

struct mg_context;
struct mg_connection;

namespace pagoda::server {

// The value of a number in the query, `otherwise` where it is not there. Errors: INVALID_ARGUMENT
// for what is no number from 0 to 2^64 - 1.
absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name,
                                     uint64_t otherwise);

// The value of a name in the query as it stands there; "" where it is not there.
std::string QueryText(const HttpRequest& request, const std::string& name);

// Answers GET and HEAD, or POST, of exact paths on threads of its own; any other path is 404, any
// other method 405. A connection has one request. A client keeps its thread while it reads; one
// that reads nothing is given up after a second, one that reads slowly as PacedWriter says.
class HttpServer {
 public:
  // By path, "/metrics". Called on the server's threads, several at a time.
  using Routes = std::map<std::string, std::function<HttpResponse(const HttpRequest&)>>;
  // The same; one may keep its thread for long.
  using PostRoutes = std::map<std::string, std::function<void(const HttpRequest&, HttpExchange&)>>;
  struct Posts {
    PostRoutes routes;
    uint32_t threads = 0;  // Besides those that a server without them has.
  };

  // Errors: INVALID_ARGUMENT where the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const TcpAddress& address,
                                                           Routes routes) {
    return Start(address, std::move(routes), Posts{});
  }
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const TcpAddress& address, Routes routes,
                                                           Posts posts);
  // Waits for requests that run.
  ~HttpServer();

  // With the port that was taken where the address asked for any.
  const TcpAddress& address() const { return address_; }

 private:
  HttpServer(Routes routes, PostRoutes posts)
      : routes_(std::move(routes)), posts_(std::move(posts)) {}

  // Answers a request. The status: civetweb has nothing more to do.
  static int Handle(mg_connection* connection);
  HttpResponse Respond(const std::string& method, const std::string& path,
                       const HttpRequest& request) const;

  const Routes routes_;
  const PostRoutes posts_;
  TcpAddress address_;
  mg_context* context_ = nullptr;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_SERVER_H_
