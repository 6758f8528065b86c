// The frames of one direction of an HTTP/2 connection (RFC 9113, sections 4.1 and 6).
#ifndef PAGODA_SERVER_LISTENER_HTTP2_FRAMES_H_
#define PAGODA_SERVER_LISTENER_HTTP2_FRAMES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace pagoda::server {

// A frame without its payload.
struct Http2Frame {
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kResetStream = 3,
    kSettings = 4,
    kContinuation = 9
  };
  static constexpr uint8_t kAck = 0x1;  // A flag of SETTINGS.
  static constexpr uint8_t kEndStream = 0x1;
  static constexpr uint8_t kEndHeaders = 0x4;

  uint32_t payload_bytes = 0;
  uint8_t type = 0;  // Not only those of Type.
  uint8_t flags = 0;
  uint32_t stream = 0;

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};

// Finds the frames in bytes that come in any pieces, after the preface. Thread-compatible.
class Http2FrameReader {
 public:
  // Calls `on_frame` for each frame whose header is complete, before its payload. Stops and
  // returns false if `on_frame` returns false.
  bool Read(absl::Span<const uint8_t> bytes, absl::FunctionRef<bool(const Http2Frame&)> on_frame) {
    while (!bytes.empty()) {
      const size_t payload = std::min(bytes.size(), left_);
      bytes.remove_prefix(payload);
      left_ -= payload;
      const size_t count = std::min(bytes.size(), kHeaderBytes - seen_);
      std::copy_n(bytes.begin(), count, header_.begin() + static_cast<ptrdiff_t>(seen_));
      bytes.remove_prefix(count);
      seen_ += count;
      if (seen_ < kHeaderBytes) break;
      seen_ = 0;
      const Http2Frame frame = Parse();
      left_ = frame.payload_bytes;
      if (!on_frame(frame)) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kHeaderBytes = 9;

  Http2Frame Parse() const {
    const auto number = [this](size_t at, size_t size) {
      uint32_t value = 0;
      for (size_t i = at; i < at + size; ++i) value = value << 8 | header_[i];
      return value;
    };
    return {.payload_bytes = number(0, 3),
            .type = header_[3],
            .flags = header_[4],
            .stream = number(5, 4) & 0x7fffffff};
  }

  size_t seen_ = 0;  // Bytes received of the current frame header.
  size_t left_ = 0;  // Bytes of the current payload that have not arrived.
  std::array<uint8_t, kHeaderBytes> header_ = {};
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LISTENER_HTTP2_FRAMES_H_
