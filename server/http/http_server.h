// The daemon's HTTP server: metrics, probes, the status page and the OpenAI API.
#ifndef PAGODA_SERVER_HTTP_HTTP_SERVER_H_
#define PAGODA_SERVER_HTTP_HTTP_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "base/thread.h"
#include "server/http/http_exchange.h"
#include "server/listen_address.h"

struct mg_context;
struct mg_connection;

namespace pagoda::server {

// The number `name` in the query; `otherwise` if it is missing. Errors: INVALID_ARGUMENT unless it
// is a number from 0 to 2^64 - 1.
absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name,
                                     uint64_t otherwise);

// The value of `name` in the query, not decoded; "" if it is missing.
std::string QueryText(const HttpRequest& request, const std::string& name);

// Answers GET and HEAD, or POST, of exact paths on its own threads. Any other path is a 404, any
// other method a 405. A connection has one request. A client occupies a thread while it reads its
// answer. A client that reads nothing is given up after a second; PacedWriter gives up a slow one.
class HttpServer {
 public:
  // By path, such as "/metrics"; "/v1/models/*" is the route of all paths that begin so, unless
  // they have a route of their own. Called on the server's threads, several at a time.
  using Routes = std::map<std::string, std::function<HttpResponse(const HttpRequest&)>>;
  // The same for POST. Such a route may occupy its thread for a long time.
  using PostRoutes = std::map<std::string, std::function<void(const HttpRequest&, HttpExchange&)>>;
  struct Posts {
    PostRoutes routes;
    uint32_t threads = 0;  // In addition to the threads for GET and HEAD.
  };

  // Errors: INVALID_ARGUMENT if the server cannot listen on the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const TcpAddress& address,
                                                           Routes routes) {
    return Start(address, std::move(routes), Posts{});
  }
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const TcpAddress& address, Routes routes,
                                                           Posts posts);
  // Waits for running requests.
  ~HttpServer();

  // The address, with the actual port if port 0 was asked for.
  const TcpAddress& address() const { return address_; }

 private:
  HttpServer(Routes routes, PostRoutes posts)
      : routes_(std::move(routes)), posts_(std::move(posts)) {}

  // Called by civetweb when its accepting thread begins.
  static void* TakeListener(const mg_context* context, int thread_type);
  // Answers a request. Returns its status, which tells civetweb that the request is done.
  static int Handle(mg_connection* connection);
  // Sets the request's `rest`.
  Routes::const_iterator RouteFor(const std::string& path, HttpRequest& request) const;
  HttpResponse Respond(const std::string& method, const std::string& path,
                       HttpRequest request) const;

  const Routes routes_;
  const PostRoutes posts_;
  TcpAddress address_;
  int listener_ = -1;  // Until civetweb has it.
  mg_context* context_ = nullptr;
  // Connects until civetweb has stopped. It exists from the start, because the end of the daemon
  // must not need a new thread.
  absl::Notification stopping_, stopped_;
  Thread knocker_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_SERVER_H_
