// Limits what one HTTP/2 connection can send before any of its calls is known.
#ifndef PAGODA_SERVER_LISTENER_CONNECTION_LIMIT_H_
#define PAGODA_SERVER_LISTENER_CONNECTION_LIMIT_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "server/callers/open_calls.h"
#include "server/listener/header_limit.h"
#include "server/listener/http2_frames.h"

namespace pagoda::server {

struct StreamLimits {
  size_t open = 4096;  // The open streams of one connection.
  size_t all_waiting = 8192;
  size_t all_open = 24576;

  // For a server with these keys of the configuration.
  static StreamLimits For(size_t max_calls, size_t max_calls_per_connection) {
    // Calls in kept places, health checks, and refused calls are open in addition to the others.
    constexpr size_t kOthers = 2 * OpenCalls::kKeptPlaces + 256;
    return {.open = 2 * max_calls_per_connection,
            .all_waiting = max_calls + kOthers,
            .all_open = 2 * max_calls + kOthers};
  }
};

// gRPC 1.51 keeps 6 to 15 KiB for each open stream. It limits their number only if the client has
// acknowledged the server's SETTINGS, and it shows a unary call to the daemon only when its message
// is complete. So this class follows the frames of both directions and counts the streams itself.
//
// 1. HeaderLimit holds.
// 2. Before the client acknowledges the SETTINGS, it has at most kMaxEarlyStreams open streams. It
//    acknowledges them within kAcknowledgeTime.
// 3. Afterwards it has at most StreamLimits::open streams.
// 4. A stream *waits* until its request is complete or its answer has begun. If the client does not
//    read what the server sends, complete requests wait too, until their answer has begun. All
//    connections together have StreamLimits::all_waiting of these, and StreamLimits::all_open
//    streams of any kind. A stream beyond these numbers ends the connection that has most of them,
//    and of several the oldest. Ended connections count until they are gone. Meanwhile others may
//    begin as many streams again, and beyond that only connections with few of them.
// 5. A client that has incomplete requests completes one within kCompleteTime.
// 6. A client reads something within kReadTime.
//
// The times are checked whenever bytes pass in one of the directions. The server's keepalive sends
// some every 30 seconds. Admission and UntakenAnswers limit the other streams. Thread-compatible,
// but objects of several threads may live at a time.
class ConnectionLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A client can send this many calls before it has read the server's SETTINGS: RFC 9113 (section
  // 6.5.2) advises servers to allow no fewer. gRPC's clients read the SETTINGS first.
  static constexpr size_t kMaxEarlyStreams = 100;
  static constexpr std::chrono::seconds kAcknowledgeTime{10};
  // A request of 32 MiB takes this long at 4.5 Mbit/s.
  static constexpr std::chrono::seconds kCompleteTime{60};
  static constexpr std::chrono::seconds kReadTime{60};

  // Whether SetBlocked will be called. Otherwise the client counts as one that does not read.
  enum class Sees : uint8_t { kBlocked, kNothing };

  // `end` ends the connection at once. It is called at most once, from any thread, and calls no
  // function of this class. Without it the connection ends when bytes pass the next time.
  ConnectionLimit(Sees sees, Time now, std::function<void()> end = nullptr);
  ConnectionLimit(const ConnectionLimit&) = delete;
  ConnectionLimit& operator=(const ConnectionLimit&) = delete;
  ~ConnectionLimit();

  // The limits of all connections of this process. They are set before the first one begins.
  static void SetLimits(const StreamLimits& limits);

  // How many connections were ended since the process started.
  static uint64_t NumEnded();

  // Takes the next bytes from the client. False: the connection must end.
  bool Receive(absl::Span<const uint8_t> bytes, Time now);
  // Takes the next bytes to the client. False: the connection must end.
  bool Send(absl::Span<const uint8_t> bytes, Time now);
  // Whether the system takes no more bytes to the client now.
  void SetBlocked(bool blocked, Time now);

 private:
  class Shares;  // What all connections have together.
  enum class Stream : uint8_t { kIncomplete, kComplete, kAnswered };

  bool OnReceived(const Http2Frame& frame, Time now);
  void OnSent(const Http2Frame& frame, Time now);
  bool BeginStream(const Http2Frame& headers, Time now);
  // Moves the stream on, if it is open and not there already.
  void Advance(uint32_t stream, Stream to, Time now);
  void End(uint32_t stream, Time now);
  // Counts the connection as ended if it may not go on.
  bool Judge(bool may_go_on);
  // Whether the client keeps the times, and no other connection has ended this one.
  bool MayGoOn(Time now) const;
  // How many streams wait.
  size_t Waiting() const { return incomplete_ + (blocked_ ? complete_ : 0); }
  // Adds what has changed to the shares.
  void Count();

  const std::function<void()> end_;
  const Time begin_;
  const uint64_t serial_;  // Ascends in the order of the connections' begin.
  HeaderLimit headers_;
  Http2FrameReader sent_;
  bool acknowledged_ = false;
  bool blocked_;
  Time blocked_since_ = Time::max();
  uint32_t last_stream_ = 0;
  absl::flat_hash_map<uint32_t, Stream> streams_;  // The open ones.
  size_t incomplete_ = 0;                          // The incomplete ones of streams_.
  size_t complete_ = 0;
  // When a stream was completed, or the first of the incomplete ones began.
  Time completed_ = Time::max();
  // What the shares contain. Other connections read these.
  std::atomic<size_t> shared_waiting_ = 0;
  std::atomic<size_t> shared_open_ = 0;
  std::atomic<bool> ended_ = false;  // By a limit, or by another connection.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_LISTENER_CONNECTION_LIMIT_H_
