#ifndef PAGODA_SERVER_HTTP_CIVETWEB_EXCHANGE_H_
#define PAGODA_SERVER_HTTP_CIVETWEB_EXCHANGE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/http/http_exchange.h"

struct mg_connection;

namespace pagoda::server {

// The request in the form that routes take.
HttpRequest RequestOf(const mg_connection* connection);

enum class WithBody : uint8_t { kYes, kNo };  // The answer to a HEAD has no body.
void WriteResponse(mg_connection* connection, const HttpResponse& response, WithBody body);

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

// Writes to a connection, and gives up on a client that reads too slowly. Thread-compatible.
class PacedWriter {
 public:
  explicit PacedWriter(mg_connection* connection) : connection_(connection) {}

  // Returns false if the client does not take the bytes. After that, every later call returns
  // false.
  bool Write(absl::string_view bytes);
  bool broken() const { return broken_; }

 private:
  mg_connection* const connection_;
  ReadingPace pace_;
  bool broken_ = false;
};

// An exchange on a civetweb connection. Valid while the connection's handler runs.
// Thread-compatible.
class CivetwebExchange final : public HttpExchange {
 public:
  explicit CivetwebExchange(mg_connection* connection)
      : connection_(connection), writer_(connection) {}

  absl::StatusOr<std::string> ReadBody(size_t max_bytes, absl::Duration time) override;
  void Answer(const HttpResponse& response) override;
  bool BeginStream(const std::string& content_type) override;
  bool Write(absl::string_view bytes) override;
  void EndStream() override;
  bool ClientIsThere() override;

  // The status of the answer.
  int status() const { return status_; }

 private:
  mg_connection* const connection_;
  PacedWriter writer_;
  int status_ = 200;
  bool chunked_ = false;
  int socket_ = -1;  // Found by the first ClientIsThere.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_CIVETWEB_EXCHANGE_H_
