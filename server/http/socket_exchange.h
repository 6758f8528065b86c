#ifndef PAGODA_SERVER_HTTP_SOCKET_EXCHANGE_H_
#define PAGODA_SERVER_HTTP_SOCKET_EXCHANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/http/http_exchange.h"

namespace pagoda::server {

// Decides whether a client reads its answer fast enough to keep a thread. Thread-compatible.
class ReadingPace {
 public:
  // The thread may have waited for kPatience, plus one second for each kBytesPerSecond bytes that
  // the client has taken.
  static constexpr absl::Duration kPatience = absl::Seconds(10);
  static constexpr size_t kBytesPerSecond = 128 << 10;

  // Adds a write of `bytes` that took `waited`.
  void Add(size_t bytes, absl::Duration waited) {
    bytes_ += bytes;
    waited_ += waited;
  }
  bool too_slow() const {
    return waited_ > kPatience + absl::Seconds(static_cast<double>(bytes_) / kBytesPerSecond);
  }

 private:
  size_t bytes_ = 0;
  absl::Duration waited_;
};

// Writes to a socket from a thread that may wait, and gives up on a client that reads too slowly.
// Thread-compatible.
class PacedWriter {
 public:
  // Once `stopping` is set, the writer waits no longer. Both outlive the writer.
  PacedWriter(int fd, const std::atomic<bool>* stopping) : fd_(fd), stopping_(stopping) {}

  // Returns false if the client does not take the bytes. After that, every later call returns
  // false.
  bool Write(absl::string_view bytes);
  bool broken() const { return broken_; }

 private:
  const int fd_;
  const std::atomic<bool>* const stopping_;
  ReadingPace pace_;
  bool broken_ = false;
};

enum class Framing : uint8_t { kChunks, kUntilTheEnd };  // The second for clients of HTTP 1.0.

// An exchange on a socket, which outlives it. Thread-compatible.
class SocketExchange final : public HttpExchange {
 public:
  SocketExchange(int fd, Framing framing, const std::atomic<bool>* stopping)
      : fd_(fd), framing_(framing), writer_(fd, stopping) {}

  void Answer(const HttpResponse& response) override;
  bool BeginStream(const std::string& content_type) override;
  bool Write(absl::string_view bytes) override;
  void EndStream() override;
  bool ClientIsThere() override;

 private:
  const int fd_;
  const Framing framing_;
  PacedWriter writer_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_SOCKET_EXCHANGE_H_
