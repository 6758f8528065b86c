#include "server/rpc/connection_limit.h"

#include <atomic>

namespace pagoda::server {
namespace {

std::atomic<size_t> max_open = StreamLimits().open;
std::atomic<size_t> max_waiting = StreamLimits().waiting;
std::atomic<size_t> all_waiting = 0;  // Over all connections.

}  // namespace

ConnectionLimit::~ConnectionLimit() {
  incomplete_ = 0;
  complete_ = 0;
  Count();
}

bool ConnectionLimit::Receive(absl::Span<const uint8_t> bytes) {
  const auto on_frame = [this](const Http2Frame& frame) { return OnReceived(frame); };
  if (!headers_.Accept(bytes, on_frame)) return false;
  const bool is_late =
      !acknowledged_ && last_stream_ != 0 && absl::Now() - begin_ > kAcknowledgeTime;
  const bool reads =
      blocked_since_ == absl::InfiniteFuture() || absl::Now() - blocked_since_ < kReadTime;
  return !is_late && reads;
}

void ConnectionLimit::Send(absl::Span<const uint8_t> bytes) {
  sent_.Read(bytes, [this](const Http2Frame& frame) {
    OnSent(frame);
    return true;
  });
}

void ConnectionLimit::SetBlocked(bool blocked) {
  if (blocked == blocked_) return;
  blocked_ = blocked;
  blocked_since_ = blocked ? absl::Now() : absl::InfiniteFuture();
  Count();
}

bool ConnectionLimit::OnReceived(const Http2Frame& frame) {
  switch (frame.type) {
    case Http2Frame::kSettings:
      acknowledged_ = acknowledged_ || frame.has(Http2Frame::kAck);
      return true;
    case Http2Frame::kResetStream:
      End(frame.stream);
      return true;
    case Http2Frame::kHeaders:
      // Others are the trailers of a stream.
      if (frame.stream > last_stream_ && !BeginStream(frame)) return false;
      [[fallthrough]];
    case Http2Frame::kData:
      if (frame.has(Http2Frame::kEndStream)) Advance(frame.stream, Stream::kComplete);
      return true;
    default:
      return true;
  }
}

void ConnectionLimit::OnSent(const Http2Frame& frame) {
  if (frame.type == Http2Frame::kHeaders) Advance(frame.stream, Stream::kAnswered);
  const bool ends = (frame.type == Http2Frame::kHeaders || frame.type == Http2Frame::kData) &&
                    frame.has(Http2Frame::kEndStream);
  if (ends || frame.type == Http2Frame::kResetStream) End(frame.stream);
}

bool ConnectionLimit::BeginStream(const Http2Frame& headers) {
  last_stream_ = headers.stream;
  if (streams_.size() >= (acknowledged_ ? max_open.load() : kMaxEarlyStreams)) return false;
  if (Waiting() >= kMinWaiting && all_waiting.load() >= max_waiting.load()) return false;
  streams_.emplace(headers.stream, Stream::kIncomplete);
  ++incomplete_;
  Count();
  return true;
}

void ConnectionLimit::Advance(uint32_t stream, Stream to) {
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second >= to) return;
  --(found->second == Stream::kIncomplete ? incomplete_ : complete_);
  if (to == Stream::kComplete) ++complete_;
  found->second = to;
  Count();
}

void ConnectionLimit::End(uint32_t stream) {
  Advance(stream, Stream::kAnswered);
  streams_.erase(stream);
}

void ConnectionLimit::Count() {
  const size_t now = Waiting();
  all_waiting.fetch_add(now - counted_, std::memory_order_relaxed);  // Can wrap around.
  counted_ = now;
}

void SetStreamLimits(const StreamLimits& limits) {
  max_open = limits.open;
  max_waiting = limits.waiting;
}

}  // namespace pagoda::server
