// Limits the HTTP/2 header block that one connection can send.
#ifndef PAGODA_SERVER_LISTENER_HEADER_LIMIT_H_
#define PAGODA_SERVER_LISTENER_HEADER_LIMIT_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "server/listener/http2_frames.h"

namespace pagoda::server {

// Follows the bytes that a client sends on one connection. Detects a header block that is too large
// or split into too many frames. gRPC 1.51 keeps the unparsed part of a block, and copies and
// parses it again for each frame and each read (CVE-2023-33953). The time for a block therefore
// grows with the square of its size; this limit bounds it. Thread-compatible.
//
// A block is the payload of a HEADERS frame and of the CONTINUATION frames after it, up to
// END_HEADERS. Bytes that do not begin with HTTP/2's preface are not checked: gRPC refuses them.
class HeaderLimit {
 public:
  // HTTP/2's default for the payload of one frame. gRPC itself refuses more than 8 KiB of metadata,
  // with a status of the call, and ends the connection. It does so only if the client has
  // acknowledged its SETTINGS. This limit holds for every client, and sends no answer.
  static constexpr size_t kMaxBlockBytes = 16 << 10;
  // Clients split a block only if it is larger than a frame.
  static constexpr int kMaxBlockFrames = 8;

  // Takes the next bytes, and calls `on_frame` for each frame that they begin. False: they exceed a
  // limit, another frame is inside a block, or `on_frame` returned false; the connection must end.
  // Every later call then returns false.
  bool Accept(
      absl::Span<const uint8_t> bytes,
      absl::FunctionRef<bool(const Http2Frame&)> on_frame = [](const Http2Frame&) { return true; });

 private:
  enum class Phase : uint8_t { kPreface, kFrames, kOtherProtocol, kRefused };

  // Called when the frame header is complete. False: the frame exceeds a limit.
  bool BeginFrame(const Http2Frame& frame);

  Phase phase_ = Phase::kPreface;
  bool in_block_ = false;   // END_HEADERS has not arrived.
  int block_frames_ = 0;    // In the current block.
  size_t block_bytes_ = 0;  // In the current block.
  size_t seen_ = 0;         // Bytes received of the preface.
  Http2FrameReader frames_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LISTENER_HEADER_LIMIT_H_
