#include "server/http/http_server.h"

#include <civetweb.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/error.h"
#include "server/http/civetweb_exchange.h"
#include "server/log.h"

namespace pagoda::server {
namespace {

// A thread serves one connection at a time, even one whose request never comes. The short timeout
// lets a probe behind many such connections be answered in time. Correct clients send their request
// at once.
constexpr uint32_t kThreads = 32;
constexpr char kRequestTimeoutMs[] = "1000";
// civetweb in Debian knows no IPv6. It begins with a port of its own, and its socket is then
// replaced by one that listens at the server's address.
constexpr char kCivetwebsOwn[] = "127.0.0.1:0";
constexpr int kMasterThread = 0;
constexpr absl::Duration kKnockInterval = absl::Milliseconds(10);

// As civetweb's own.
constexpr int kHttpBacklog = 200;

int LogMessage(const mg_connection*, const char* message) {
  Log(LogLevel::kWarning, absl::StrCat("http: ", message));
  return 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const TcpAddress& address,
                                                              Routes routes, Posts posts) {
  absl::StatusOr<ListeningSocket> listener = ListenOn(address, kHttpBacklog);
  if (!listener.ok()) return listener.status();
  auto server = absl::WrapUnique(new HttpServer(std::move(routes), std::move(posts.routes)));
  server->listener_ = listener->fd;
  server->address_ = listener->address;
  absl::Status started = server->knocker_.Start("pagoda-knocker", [s = server.get()] {
    s->stopping_.WaitForNotification();
    while (!s->stopped_.WaitForNotificationWithTimeout(kKnockInterval)) Knock(s->address_);
  });
  if (!started.ok()) return started;
  const std::string threads = absl::StrCat(kThreads + posts.threads);
  const char* options[] = {"listening_ports",    kCivetwebsOwn,     "num_threads", threads.c_str(),
                           "request_timeout_ms", kRequestTimeoutMs, nullptr};
  mg_callbacks callbacks = {};
  callbacks.log_message = LogMessage;
  // Runs before civetweb's own handling, which answers some requests, such as a websocket
  // handshake, with something that is not HTTP.
  callbacks.begin_request = Handle;
  callbacks.init_thread = TakeListener;
  mg_init_data init = {&callbacks, server.get(), options};
  unsigned code = 0;
  std::array<char, 256> text = {};
  mg_error_data error = {&code, text.data(), text.size()};
  server->context_ = mg_start2(&init, &error);
  if (server->context_ == nullptr) {
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat("cannot serve HTTP on ", address.ToString(), ": ", text.data()));
  }
  return server;
}

void* HttpServer::TakeListener(const mg_context* context, int thread_type) {
  if (thread_type != kMasterThread) return nullptr;
  auto* const server = static_cast<HttpServer*>(mg_get_user_data(context));
  mg_server_port port = {};
  mg_get_server_ports(context, 1, &port);
  const std::vector<int> own =
      OwnListeners(TcpAddress{"127.0.0.1", static_cast<uint16_t>(port.port)});
  PAGODA_CHECK(own.size() == 1 && dup3(server->listener_, own.front(), O_CLOEXEC) >= 0,
               "civetweb listens where it was told to");
  close(std::exchange(server->listener_, -1));
  return nullptr;
}

HttpServer::~HttpServer() {
  // civetweb checks its stop flag when a connection arrives, or every two seconds.
  stopping_.Notify();
  if (context_ != nullptr) mg_stop(context_);
  stopped_.Notify();
  knocker_.Join();
  if (listener_ >= 0) close(listener_);
}

int HttpServer::Handle(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  const std::string method = request->request_method;
  const auto* server = static_cast<const HttpServer*>(request->user_data);
  const auto post = server->posts_.find(request->local_uri);
  if (method == "POST" && post != server->posts_.end()) {
    CivetwebExchange exchange(connection);
    post->second(RequestOf(connection), exchange);
    return exchange.status();
  }
  const HttpResponse response = server->Respond(method, request->local_uri, RequestOf(connection));
  WriteResponse(connection, response, method == "HEAD" ? WithBody::kNo : WithBody::kYes);
  return response.status;
}

namespace {

// JSON for paths of the two APIs, each in its form; else plain text.
HttpResponse Refuse(int status, const std::string& path, const char* reason, const char* text) {
  if (absl::StartsWith(path, "/v1/")) {
    return {.status = status,
            .content_type = "application/json",
            .body = absl::StrCat(R"({"error":{"message":")", text,
                                 R"(","type":"invalid_request_error","param":null,"code":")",
                                 absl::AsciiStrToLower(reason), "\"}}")};
  }
  if (!absl::StartsWith(path, "/api/")) return {.status = status, .body = absl::StrCat(text, "\n")};
  return {
      .status = status,
      .content_type = "application/json",
      .body = absl::StrCat(R"({"error":{"reason":")", reason, R"(","message":")", text, "\"}}")};
}

}  // namespace

HttpServer::Routes::const_iterator HttpServer::RouteFor(const std::string& path,
                                                        HttpRequest& request) const {
  auto route = routes_.find(path);
  for (size_t end = path.size(); route == routes_.end() && end > 0; --end) {
    if (path[end - 1] != '/') continue;
    route = routes_.find(absl::StrCat(path.substr(0, end), "*"));
    if (route != routes_.end()) request.rest = path.substr(end);
  }
  return route;
}

HttpResponse HttpServer::Respond(const std::string& method, const std::string& path,
                                 HttpRequest request) const {
  if (posts_.contains(path)) return Refuse(405, path, "METHOD_NOT_ALLOWED", "POST only");
  const auto route = RouteFor(path, request);
  if (route == routes_.end()) return Refuse(404, path, "NOT_FOUND", "not found");
  if (method != "GET" && method != "HEAD") {
    return Refuse(405, path, "METHOD_NOT_ALLOWED", "GET only");
  }
  return route->second(request);
}

std::string QueryText(const HttpRequest& request, const std::string& name) {
  for (const absl::string_view part : absl::StrSplit(request.query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first == name) return std::string(pair.second);
  }
  return "";
}

absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name,
                                     uint64_t otherwise) {
  for (const absl::string_view part : absl::StrSplit(request.query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.first != name) continue;
    uint64_t number = 0;
    if (absl::SimpleAtoi(pair.second, &number)) return number;
    return MakeError(Reason::kInvalidArgument,
                     absl::StrCat(name, " is not a number: '", pair.second, "'"));
  }
  return otherwise;
}

}  // namespace pagoda::server
