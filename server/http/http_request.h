// Reads HTTP/1 requests from bytes.
#ifndef PAGODA_SERVER_HTTP_HTTP_REQUEST_H_
#define PAGODA_SERVER_HTTP_HTTP_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/http/http_exchange.h"

namespace pagoda::server {

// The first line and the headers, up to and with the empty line.
inline constexpr size_t kMaxHeadBytes = 16 << 10;

struct HttpHead {
  std::string method;
  std::string path;  // Decoded, without the query.
  bool is_http_1_0 = false;
  bool is_chunked = false;      // The body comes in chunks.
  uint64_t content_length = 0;  // If it does not.
  bool expects_continue = false;
  HttpRequest request;
};

// `text` ends with the empty line. One empty line before the first line is skipped. Errors:
// INVALID_ARGUMENT with the fault. A head that two servers could understand in different ways is an
// error: two lengths, two hosts, a folded header.
absl::StatusOr<HttpHead> ParseHead(absl::string_view text);

// Decodes the body of a request piece by piece. Thread-compatible.
class BodyReader {
 public:
  BodyReader() = default;
  explicit BodyReader(const HttpHead& head)
      : state_(head.is_chunked ? State::kSize : State::kFixed), left_(head.content_length) {}

  // Appends what `bytes` has of the body. False: they are not valid chunks. Bytes behind the body
  // are ignored.
  bool Take(absl::string_view bytes, std::string* body);
  bool done() const { return state_ == State::kDone || (state_ == State::kFixed && left_ == 0); }

 private:
  enum class State : uint8_t { kFixed, kSize, kData, kDataEnd, kTrailer, kDone };

  bool EndLine();

  State state_ = State::kFixed;
  uint64_t left_ = 0;  // Bytes of the body or of the chunk that have not arrived.
  std::string line_;   // The open line: a chunk's size, or one of the trailer.
  size_t trailer_bytes_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_HTTP_HTTP_REQUEST_H_
