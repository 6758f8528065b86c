#include "server/listener/header_limit.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"

namespace pagoda::server {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

}  // namespace

bool HeaderLimit::Accept(absl::Span<const uint8_t> bytes,
                         absl::FunctionRef<bool(const Http2Frame&)> on_frame) {
  if (phase_ == Phase::kPreface) {
    const size_t count = std::min(bytes.size(), kPreface.size() - seen_);
    if (std::memcmp(bytes.data(), kPreface.data() + seen_, count) != 0) {
      phase_ = Phase::kOtherProtocol;
    }
    bytes.remove_prefix(count);
    seen_ += count;
    if (phase_ == Phase::kPreface && seen_ == kPreface.size()) phase_ = Phase::kFrames;
  }
  if (phase_ == Phase::kFrames && !frames_.Read(bytes, [this, on_frame](const Http2Frame& frame) {
        return BeginFrame(frame) && on_frame(frame);
      })) {
    phase_ = Phase::kRefused;
  }
  return phase_ != Phase::kRefused;
}

bool HeaderLimit::BeginFrame(const Http2Frame& frame) {
  if (in_block_ != (frame.type == Http2Frame::kContinuation)) return false;
  if (frame.type == Http2Frame::kHeaders) {
    block_bytes_ = 0;
    block_frames_ = 0;
  } else if (frame.type != Http2Frame::kContinuation) {
    return true;
  }
  block_bytes_ += frame.payload_bytes;
  ++block_frames_;
  in_block_ = !frame.has(Http2Frame::kEndHeaders);
  return block_bytes_ <= kMaxBlockBytes && block_frames_ <= kMaxBlockFrames;
}

}  // namespace pagoda::server
