// How much of HTTP/2 headers one connection may send at once.
#ifndef PAGODA_SERVER_RPC_HEADER_LIMIT_H_
#define PAGODA_SERVER_RPC_HEADER_LIMIT_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace pagoda::server {

// Follows the bytes that a client sends on one connection and finds a header block that is too
// large, or is cut into too many frames. gRPC 1.51 keeps what it cannot parse yet of a block, and
// copies and parses it again for each frame and each read (CVE-2023-33953), so the time that a
// block takes grows with its square. With this bound it does not. Thread-compatible.
//
// A block is the payload of a HEADERS frame and of the CONTINUATION frames behind it, up to
// END_HEADERS. Bytes that do not begin with HTTP/2's preface are not looked at: gRPC refuses them.
class HeaderLimit {
 public:
  // What one frame may hold by HTTP/2's default. gRPC refuses more than 8 KiB of metadata by
  // itself, with a status of the call, and ends the connection; but only where the client has
  // acknowledged its SETTINGS. This bound holds for everybody, and answers nothing.
  static constexpr size_t kMaxBlockBytes = 16 << 10;
  // Clients cut a block only where it is larger than a frame.
  static constexpr int kMaxBlockFrames = 8;

  // Takes the next bytes. False: they exceed a bound, or another frame stands inside a block; the
  // connection must end. It stays false.
  bool Accept(absl::Span<const uint8_t> bytes);

 private:
  enum class Phase : uint8_t { kPreface, kFrameHeader, kPayload, kOtherProtocol, kRefused };
  static constexpr size_t kFrameHeaderBytes = 9;

  // The frame header is complete. False: the frame exceeds a bound.
  bool BeginFrame();

  Phase phase_ = Phase::kPreface;
  bool in_block_ = false;   // END_HEADERS has not come.
  int block_frames_ = 0;    // Of the block in hand.
  size_t block_bytes_ = 0;  // Likewise.
  size_t seen_ = 0;         // Bytes of the preface, or of the frame header in hand.
  size_t left_ = 0;         // Bytes of the payload in hand that have not come.
  std::array<uint8_t, kFrameHeaderBytes> frame_header_ = {};
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_HEADER_LIMIT_H_
