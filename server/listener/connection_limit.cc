#include "server/listener/connection_limit.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/synchronization/mutex.h"

namespace pagoda::server {

// Thread-safe. A connection that another one ended counts until it is gone.
class ConnectionLimit::Shares {
 public:
  static Shares& Get() {
    static auto& shares = *new Shares;
    return shares;
  }

  void Set(const StreamLimits& limits) {
    max_open_ = limits.open;
    max_all_waiting_ = limits.all_waiting;
    max_all_open_ = limits.all_open;
  }
  size_t max_open() const { return max_open_; }

  // Returns the connection's serial number.
  uint64_t Enter(ConnectionLimit* connection) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    connections_.emplace(next_, connection);
    return next_++;
  }
  void Leave(uint64_t serial) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    connections_.erase(serial);
  }

  // Moves a connection's part of a share.
  static void Move(std::atomic<size_t>& share, std::atomic<size_t>& part, size_t to) {
    const size_t from = part.load(std::memory_order_relaxed);
    if (from == to) return;
    part.store(to, std::memory_order_relaxed);
    share.fetch_add(to - from, std::memory_order_relaxed);  // Can wrap around.
  }
  void Count(ConnectionLimit& connection) {
    Move(all_waiting_, connection.shared_waiting_, connection.Waiting());
    Move(all_open_, connection.shared_open_, connection.streams_.size());
  }

  void MarkEnded(ConnectionLimit& connection) {
    if (!connection.ended_.exchange(true)) num_ended_.fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t num_ended() const { return num_ended_.load(std::memory_order_relaxed); }

  // Whether `connection` may begin a stream. Ends another connection if that one has more.
  bool Admit(const ConnectionLimit& connection) ABSL_LOCKS_EXCLUDED(mutex_) {
    return Admit(connection, &ConnectionLimit::shared_waiting_, all_waiting_, max_all_waiting_) &&
           Admit(connection, &ConnectionLimit::shared_open_, all_open_, max_all_open_);
  }

 private:
  // A connection that was ended takes a moment to go, over TLS until bytes pass. Meanwhile others
  // take its places. At this many times the share, only connections with few streams begin more.
  static constexpr size_t kMost = 2;
  static constexpr size_t kFew = 16;

  bool Admit(const ConnectionLimit& connection, const std::atomic<size_t> ConnectionLimit::*part,
             const std::atomic<size_t>& share, size_t max) ABSL_LOCKS_EXCLUDED(mutex_) {
    if (share.load(std::memory_order_relaxed) < max) return true;
    if (share.load(std::memory_order_relaxed) >= kMost * max) {
      return (connection.*part).load(std::memory_order_relaxed) < kFew;
    }
    absl::MutexLock lock(&mutex_);
    ConnectionLimit* most = nullptr;
    size_t going = 0;  // Streams of connections that are ended already.
    for (const auto& [serial, other] : connections_) {
      const size_t streams = (other->*part).load(std::memory_order_relaxed);
      if (other->ended_.load(std::memory_order_relaxed)) {
        going += streams;
      } else if (most == nullptr || streams > (most->*part).load(std::memory_order_relaxed)) {
        most = other;
      }
    }
    if (share.load(std::memory_order_relaxed) < max + going) return true;
    if (most == nullptr || most == &connection) return false;
    MarkEnded(*most);
    if (most->end_ != nullptr) most->end_();
    return true;
  }

  std::atomic<size_t> max_open_ = StreamLimits().open;
  std::atomic<size_t> max_all_waiting_ = StreamLimits().all_waiting;
  std::atomic<size_t> max_all_open_ = StreamLimits().all_open;
  std::atomic<size_t> all_waiting_ = 0;
  std::atomic<size_t> all_open_ = 0;
  std::atomic<uint64_t> num_ended_ = 0;
  absl::Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::btree_map<uint64_t, ConnectionLimit*> connections_ ABSL_GUARDED_BY(mutex_);
};

ConnectionLimit::ConnectionLimit(Sees sees, Time now, std::function<void()> end)
    : end_(std::move(end)),
      begin_(now),
      serial_(Shares::Get().Enter(this)),
      blocked_(sees == Sees::kNothing) {}

ConnectionLimit::~ConnectionLimit() {
  Shares::Get().Leave(serial_);
  streams_.clear();
  incomplete_ = 0;
  complete_ = 0;
  Count();
}

bool ConnectionLimit::Receive(absl::Span<const uint8_t> bytes, Time now) {
  const auto on_frame = [this, now](const Http2Frame& frame) { return OnReceived(frame, now); };
  return Judge(headers_.Accept(bytes, on_frame) && MayGoOn(now));
}

bool ConnectionLimit::Send(absl::Span<const uint8_t> bytes, Time now) {
  sent_.Read(bytes, [this, now](const Http2Frame& frame) {
    OnSent(frame, now);
    return true;
  });
  return Judge(MayGoOn(now));
}

bool ConnectionLimit::Judge(bool may_go_on) {
  if (!may_go_on) Shares::Get().MarkEnded(*this);
  return may_go_on;
}

bool ConnectionLimit::MayGoOn(Time now) const {
  const bool is_late = !acknowledged_ && last_stream_ != 0 && now - begin_ > kAcknowledgeTime;
  const bool completes = incomplete_ == 0 || now - completed_ <= kCompleteTime;
  const bool reads = blocked_since_ == Time::max() || now - blocked_since_ <= kReadTime;
  return !is_late && completes && reads && !ended_.load(std::memory_order_relaxed);
}

void ConnectionLimit::SetBlocked(bool blocked, Time now) {
  if (blocked == blocked_) return;
  blocked_ = blocked;
  blocked_since_ = blocked ? now : Time::max();
  Count();
}

bool ConnectionLimit::OnReceived(const Http2Frame& frame, Time now) {
  switch (frame.type) {
    case Http2Frame::kSettings:
      acknowledged_ = acknowledged_ || frame.has(Http2Frame::kAck);
      return true;
    case Http2Frame::kResetStream:
      End(frame.stream, now);
      return true;
    case Http2Frame::kHeaders:
      // A client's streams are odd. gRPC passes over an even one, and then takes lower odd ones.
      if (frame.stream % 2 == 0) return false;
      // Others are the trailers of a stream.
      if (frame.stream > last_stream_ && !BeginStream(frame, now)) return false;
      [[fallthrough]];
    case Http2Frame::kData:
      if (frame.has(Http2Frame::kEndStream)) Advance(frame.stream, Stream::kComplete, now);
      return true;
    default:
      return true;
  }
}

void ConnectionLimit::OnSent(const Http2Frame& frame, Time now) {
  if (frame.type == Http2Frame::kHeaders) Advance(frame.stream, Stream::kAnswered, now);
  const bool ends = (frame.type == Http2Frame::kHeaders || frame.type == Http2Frame::kData) &&
                    frame.has(Http2Frame::kEndStream);
  if (ends || frame.type == Http2Frame::kResetStream) End(frame.stream, now);
}

bool ConnectionLimit::BeginStream(const Http2Frame& headers, Time now) {
  last_stream_ = headers.stream;
  Shares& shares = Shares::Get();
  if (streams_.size() >= (acknowledged_ ? shares.max_open() : kMaxEarlyStreams)) return false;
  if (!shares.Admit(*this)) return false;
  streams_.emplace(headers.stream, Stream::kIncomplete);
  if (incomplete_++ == 0) completed_ = now;
  Count();
  return true;
}

void ConnectionLimit::Advance(uint32_t stream, Stream to, Time now) {
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second >= to) return;
  if (found->second == Stream::kIncomplete) {
    --incomplete_;
    completed_ = now;
  } else {
    --complete_;
  }
  if (to == Stream::kComplete) ++complete_;
  found->second = to;
  Count();
}

void ConnectionLimit::End(uint32_t stream, Time now) {
  Advance(stream, Stream::kAnswered, now);
  if (streams_.erase(stream) != 0) Count();
}

uint64_t ConnectionLimit::NumEnded() { return Shares::Get().num_ended(); }

void ConnectionLimit::Count() { Shares::Get().Count(*this); }

void ConnectionLimit::SetLimits(const StreamLimits& limits) { Shares::Get().Set(limits); }

}  // namespace pagoda::server
