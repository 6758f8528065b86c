#include "server/rpc/header_limit.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"

namespace pagoda::server {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// RFC 9113, section 4.1 and 6.
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kEndHeaders = 0x4;

}  // namespace

bool HeaderLimit::Accept(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    switch (phase_) {
      case Phase::kPreface: {
        const size_t count = std::min(bytes.size(), kPreface.size() - seen_);
        if (std::memcmp(bytes.data(), kPreface.data() + seen_, count) != 0) {
          phase_ = Phase::kOtherProtocol;
          break;
        }
        bytes.remove_prefix(count);
        seen_ += count;
        if (seen_ < kPreface.size()) break;
        seen_ = 0;
        phase_ = Phase::kFrameHeader;
        break;
      }
      case Phase::kFrameHeader: {
        const size_t count = std::min(bytes.size(), kFrameHeaderBytes - seen_);
        std::copy_n(bytes.begin(), count, frame_header_.begin() + static_cast<ptrdiff_t>(seen_));
        bytes.remove_prefix(count);
        seen_ += count;
        if (seen_ < kFrameHeaderBytes) break;
        seen_ = 0;
        if (BeginFrame()) break;
        phase_ = Phase::kRefused;
        return false;
      }
      case Phase::kPayload: {
        const size_t count = std::min(bytes.size(), left_);
        bytes.remove_prefix(count);
        left_ -= count;
        if (left_ == 0) phase_ = Phase::kFrameHeader;
        break;
      }
      case Phase::kOtherProtocol:
        return true;
      case Phase::kRefused:
        return false;
    }
  }
  return phase_ != Phase::kRefused;
}

bool HeaderLimit::BeginFrame() {
  left_ = (size_t{frame_header_[0]} << 16) | (size_t{frame_header_[1]} << 8) | frame_header_[2];
  phase_ = left_ == 0 ? Phase::kFrameHeader : Phase::kPayload;
  const uint8_t type = frame_header_[3];
  if (in_block_ != (type == kContinuation)) return false;
  if (type == kHeaders) {
    block_bytes_ = 0;
    block_frames_ = 0;
  } else if (type != kContinuation) {
    return true;
  }
  block_bytes_ += left_;
  ++block_frames_;
  in_block_ = (frame_header_[4] & kEndHeaders) == 0;
  return block_bytes_ <= kMaxBlockBytes && block_frames_ <= kMaxBlockFrames;
}

}  // namespace pagoda::server
