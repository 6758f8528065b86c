// Arbitrary bytes on a connection to the HTTP server.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/http/http_server.h"
#include "tests/fuzz/byte_reader.h"
#include "tests/fuzz/planted.h"

namespace pagoda::server {
namespace {

constexpr char kBody[] = "all is well\n";
constexpr size_t kMaxPieces = 4;
constexpr size_t kMaxBodyBytes = 1000;
constexpr uint32_t kSources = 4096;
constexpr int kAnswerSeconds = 20;  // Longer than the server's own limit for a request.

// Reads everything that a route learns of a request.
HttpResponse Tell(const HttpRequest& request) {
  const absl::StatusOr<uint64_t> number = QueryNumber(request, "n", 7);
  return {
      .status = number.ok() ? 200 : 400,
      .body = absl::StrCat(request.host.size(), " ", request.authorization.value_or("").size())};
}

// Answers with the size of the body.
class Measure final : public HttpPost {
 public:
  absl::Status Keep(size_t) override { return absl::OkStatus(); }
  void Run(absl::StatusOr<std::string> body, HttpExchange& exchange) override {
    PAGODA_CHECK(!body.ok() || body->size() <= kMaxBodyBytes, "a body within its bound");
    exchange.Answer({.status = body.ok() ? 200 : 400,
                     .body = body.ok() ? absl::StrCat(body->size()) : body.status().ToString()});
  }
};

// One server for the whole run.
const HttpServer& Server() {
  static const HttpServer* const server = [] {
    auto started = HttpServer::Start(
        {"127.0.0.1", 0},
        {.probes = {{"/livez", [](const HttpRequest&) { return HttpResponse{.body = kBody}; }}},
         .routes = {{"/told", Tell}},
         .posts = {
             .routes = {{"/take", [](const HttpRequest&) { return std::make_unique<Measure>(); }}},
             .threads = 2,
             .max_body_bytes = kMaxBodyBytes}});
    PAGODA_CHECK(started.ok(), "the server listens");
    return started->release();
  }();
  return *server;
}

int Connect() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(Server().address().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit = {.tv_sec = kAnswerSeconds, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  // Thousands of connections a second would use up the ports of one address: 127.0.0.0/8 has more.
  static uint32_t connections = 0;
  sockaddr_in source = {};
  source.sin_family = AF_INET;
  source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + connections++ % kSources);
  const int on = 1;
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  PAGODA_CHECK(bind(fd, reinterpret_cast<const sockaddr*>(&source), sizeof(source)) == 0,
               "an address of this machine");
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  PAGODA_CHECK(connect(fd, generic, sizeof(address)) == 0, "the server takes a connection");
  return fd;
}

// The server's answer to the bytes. They are sent in a few pieces, and then the client's side is
// closed.
std::string Ask(absl::Span<const uint8_t> bytes, size_t pieces) {
  const int fd = Connect();
  const size_t size = bytes.size() / pieces + 1;
  while (!bytes.empty()) {
    const absl::Span<const uint8_t> piece = bytes.subspan(0, std::min(size, bytes.size()));
    if (TEMP_FAILURE_RETRY(send(fd, piece.data(), piece.size(), MSG_NOSIGNAL)) < 0)
      break;  // It has hung up.
    bytes.remove_prefix(piece.size());
  }
  shutdown(fd, SHUT_WR);
  std::string answer;
  char buffer[4096];
  ssize_t count;
  // The fuzzer's own clock is a signal.
  while ((count = TEMP_FAILURE_RETRY(recv(fd, buffer, sizeof(buffer), 0))) > 0) {
    answer.append(buffer, count);
  }
  PAGODA_CHECK(count == 0 || errno == ECONNRESET, "a connection ends in time");
  close(fd);
  return answer;
}

std::string Ask(const std::string& text) {
  return Ask({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, 1);
}

// The status of an answer; 0 if there is none, or none that can be read.
int StatusOf(const std::string& answer) {
  if (answer.empty()) return 0;
  PAGODA_CHECK(absl::StartsWith(answer, "HTTP/"), "an answer is HTTP");
  int status = 0;
  PAGODA_CHECK(absl::SimpleAtoi(answer.substr(9, 3), &status), "an answer has a status");
  PAGODA_CHECK(status >= 100 && status < 600, "a status has three digits");
  return status;
}

void Check(absl::Span<const uint8_t> bytes) {
  fuzz::ByteReader in(bytes);
  const size_t pieces = 1 + in.Below(kMaxPieces);
  const std::string answer = Ask(in.Take(bytes.size()), pieces);
  const int status = StatusOf(answer);
  PAGODA_CHECK(status != 405 || !fuzz::Planted("NoRefusal"), "planted: no method is refused");
  const std::string good = Ask("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
  PAGODA_CHECK(StatusOf(good) == 200 && absl::EndsWith(good, absl::StrCat("\r\n\r\n", kBody)),
               "a good request is answered afterwards");
}

}  // namespace
}  // namespace pagoda::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::server::Check({data, size});
  return 0;
}
