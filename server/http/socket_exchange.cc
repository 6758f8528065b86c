#include "server/http/socket_exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace pagoda::server {
namespace {

constexpr int kLookMs = 100;  // How often a waiting writer looks whether it must stop.

}  // namespace

bool PacedWriter::Write(absl::string_view bytes) {
  while (!broken_ && !bytes.empty()) {
    const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
      pace_.Add(static_cast<size_t>(count), absl::ZeroDuration());
    } else if (errno == EAGAIN) {
      const absl::Time start = absl::Now();
      pollfd entry = {.fd = fd_, .events = POLLOUT, .revents = 0};
      poll(&entry, 1, kLookMs);
      pace_.Add(0, absl::Now() - start);
      broken_ = pace_.too_slow() || stopping_->load(std::memory_order_relaxed);
    } else if (errno != EINTR) {
      broken_ = true;
    }
  }
  return !broken_;
}

void SocketExchange::Answer(const HttpResponse& response) {
  if (writer_.Write(HeadOf(response))) writer_.Write(response.body);
}

bool SocketExchange::BeginStream(const std::string& content_type) {
  const char* const encoding = framing_ == Framing::kChunks ? "Transfer-Encoding: chunked\r\n" : "";
  return writer_.Write(absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", content_type, "\r\n",
                                    encoding, kHttpCommonHeaders, "\r\n"));
}

bool SocketExchange::Write(absl::string_view bytes) {
  if (bytes.empty()) return !writer_.broken();
  if (framing_ == Framing::kUntilTheEnd) return writer_.Write(bytes);
  return writer_.Write(absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n"));
}

void SocketExchange::EndStream() {
  constexpr absl::string_view kLastChunk = "0\r\n\r\n";
  if (framing_ == Framing::kChunks) writer_.Write(kLastChunk);
}

bool SocketExchange::ClientIsThere() {
  if (writer_.broken()) return false;
  pollfd entry = {.fd = fd_, .events = POLLRDHUP, .revents = 0};
  return poll(&entry, 1, 0) == 0;
}

}  // namespace pagoda::server
