#include "server/http/civetweb_exchange.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/error.h"

namespace pagoda::server {
namespace {

constexpr size_t kPieceBytes = 16 << 10;

std::string HeaderOf(const mg_connection* connection, const char* name) {
  const char* value = mg_get_header(connection, name);
  return value == nullptr ? "" : value;
}

std::optional<std::string> OptionalHeader(const mg_connection* connection, const char* name) {
  const char* value = mg_get_header(connection, name);
  return value == nullptr ? std::nullopt : std::make_optional<std::string>(value);
}

// The name of a header in the request that proxies add and clients do not; "" if there is none. Not
// every proxy adds one.
std::string ProxyHeaderOf(const mg_connection* connection) {
  for (const char* name : {"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host",
                           "X-Forwarded-Proto", "X-Real-IP"}) {
    if (mg_get_header(connection, name) != nullptr) return name;
  }
  return "";
}

// The address of one end of a socket, from the system call `ask`. It is empty if the socket is not
// a TCP socket.
struct Endpoint {
  std::string address;
  int port = 0;
};

template <class Ask>
Endpoint EndpointOf(int socket, Ask ask) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (ask(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4 = {};
    std::memcpy(&v4, &storage, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {text.data(), ntohs(v4.sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 v6 = {};
    std::memcpy(&v6, &storage, sizeof(v6));
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return {text.data(), ntohs(v6.sin6_port)};
  }
  return {};
}

// civetweb does not expose a connection's socket. This finds it by its two addresses; -1 if it is
// not found. The socket stays open while the handler runs, so the number is not reused. Of an IPv6
// client, civetweb knows only the port. If two such clients have the same one, none is found.
int SocketOf(const mg_request_info& info) {
  const absl::string_view client = info.remote_addr;
  int found = -1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int socket = -1;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &socket)) continue;
    const Endpoint peer = EndpointOf(socket, getpeername);
    if (peer.port != info.remote_port) continue;
    if (client.empty() ? !absl::StrContains(peer.address, ':') : peer.address != client) continue;
    if (EndpointOf(socket, getsockname).port != info.server_port) continue;
    if (found >= 0) return -1;
    found = socket;
  }
  return found;
}

}  // namespace

HttpRequest RequestOf(const mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  return {.rest = "",
          .query = info->query_string == nullptr ? "" : info->query_string,
          .host = HeaderOf(connection, "Host"),
          .origin = OptionalHeader(connection, "Origin"),
          .authorization = OptionalHeader(connection, "Authorization"),
          .proxy_header = ProxyHeaderOf(connection)};
}

bool PacedWriter::Write(absl::string_view bytes) {
  while (!broken_ && !bytes.empty()) {
    // civetweb gives up if the client reads nothing for a second (HttpServer), but not if it reads
    // a byte now and then. So the pace is checked after each piece.
    const absl::string_view piece = bytes.substr(0, kPieceBytes);
    const absl::Time start = absl::Now();
    broken_ = mg_write(connection_, piece.data(), piece.size()) != static_cast<int>(piece.size());
    pace_.Add(piece.size(), absl::Now() - start);
    broken_ = broken_ || pace_.too_slow();
    bytes.remove_prefix(piece.size());
  }
  return !broken_;
}

void WriteResponse(mg_connection* connection, const HttpResponse& response, WithBody body) {
  PacedWriter writer(connection);
  if (writer.Write(HeadOf(response)) && body == WithBody::kYes) writer.Write(response.body);
}

absl::StatusOr<std::string> CivetwebExchange::ReadBody(size_t max_bytes, absl::Duration time) {
  const auto too_large = [&] {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("the request's body is larger than ", max_bytes, " bytes"));
  };
  const long long length = mg_get_request_info(connection_)->content_length;
  if (length > static_cast<long long>(max_bytes)) return too_large();
  if (HeaderOf(connection_, "Expect") == "100-continue") {
    constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    mg_write(connection_, kContinue.data(), kContinue.size());
  }
  const absl::Time deadline = absl::Now() + time;
  std::string body;
  std::array<char, 16384> piece = {};
  while (true) {
    const int count = mg_read(connection_, piece.data(), piece.size());
    if (count <= 0) break;
    body.append(piece.data(), static_cast<size_t>(count));
    if (body.size() > max_bytes) return too_large();
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the request's body took longer than ", absl::FormatDuration(time)));
    }
  }
  if (length >= 0 && body.size() < static_cast<size_t>(length)) {
    return absl::CancelledError("the request's body ended early");
  }
  return body;
}

void CivetwebExchange::Answer(const HttpResponse& response) {
  status_ = response.status;
  WriteResponse(connection_, response, WithBody::kYes);
}

bool CivetwebExchange::BeginStream(const std::string& content_type) {
  // For a client of HTTP 1.0, the end of the connection is the end of the answer.
  chunked_ = absl::string_view(mg_get_request_info(connection_)->http_version) == "1.1";
  const std::string head =
      absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", content_type, "\r\n",
                   chunked_ ? "Transfer-Encoding: chunked\r\n" : "", kHttpCommonHeaders, "\r\n");
  return writer_.Write(head);
}

bool CivetwebExchange::Write(absl::string_view bytes) {
  if (bytes.empty()) return !writer_.broken();
  return writer_.Write(chunked_ ? absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n")
                                : std::string(bytes));
}

void CivetwebExchange::EndStream() {
  constexpr absl::string_view kLastChunk = "0\r\n\r\n";
  if (chunked_) writer_.Write(kLastChunk);
}

bool CivetwebExchange::ClientIsThere() {
  if (writer_.broken()) return false;
  if (socket_ < 0) socket_ = SocketOf(*mg_get_request_info(connection_));
  if (socket_ < 0) return true;  // A later write fails if the client has left.
  pollfd entry = {.fd = socket_, .events = POLLRDHUP, .revents = 0};
  return poll(&entry, 1, 0) == 0;
}

}  // namespace pagoda::server
