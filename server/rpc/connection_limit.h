// Limits what one HTTP/2 connection can send before any of its calls is known.
#ifndef PAGODA_SERVER_RPC_CONNECTION_LIMIT_H_
#define PAGODA_SERVER_RPC_CONNECTION_LIMIT_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/rpc/header_limit.h"
#include "server/rpc/http2_frames.h"

namespace pagoda::server {

// gRPC 1.51 keeps 6 to 15 KiB for each open stream. It limits their number only if the client has
// acknowledged the server's SETTINGS, and it shows a unary call to the daemon only when its message
// is complete. So this class follows the frames of both directions and counts the streams itself.
//
// 1. HeaderLimit holds.
// 2. Before the client acknowledges the SETTINGS, it has at most kMaxEarlyStreams open streams. It
//    acknowledges them within kAcknowledgeTime, or sends nothing more.
// 3. Afterwards it has at most StreamLimits::open streams.
// 4. A stream *waits* until its request is complete or its answer has begun. If the client does not
//    read what the server sends, complete requests wait too, until their answer has begun. All
//    connections together have StreamLimits::waiting of these. Beyond that number, a connection can
//    begin another one only if it has fewer than kMinWaiting.
// 5. A client that reads nothing for kReadTime can send nothing more. If it is silent, gRPC's
//    keepalive ends the connection.
//
// Admission and UntakenAnswers limit the other streams. Thread-compatible.
class ConnectionLimit {
 public:
  // A client can send this many calls before it has read the server's SETTINGS: RFC 9113 (section
  // 6.5.2) advises servers to allow no fewer. gRPC's clients read the SETTINGS first.
  static constexpr size_t kMaxEarlyStreams = 100;
  static constexpr absl::Duration kAcknowledgeTime = absl::Seconds(10);
  static constexpr size_t kMinWaiting = 16;

  static constexpr absl::Duration kReadTime = absl::Minutes(1);

  // Whether SetBlocked will be called. Otherwise the client counts as one that does not read.
  enum class Sees : uint8_t { kBlocked, kNothing };

  explicit ConnectionLimit(Sees sees) : blocked_(sees == Sees::kNothing) {}
  ConnectionLimit(const ConnectionLimit&) = delete;
  ConnectionLimit& operator=(const ConnectionLimit&) = delete;
  ~ConnectionLimit();

  // Takes the next bytes from the client. False: the connection must end.
  bool Receive(absl::Span<const uint8_t> bytes);
  // Takes the next bytes to the client.
  void Send(absl::Span<const uint8_t> bytes);
  // Whether the system takes no more bytes to the client now.
  void SetBlocked(bool blocked);

 private:
  enum class Stream : uint8_t { kIncomplete, kComplete, kAnswered };

  bool OnReceived(const Http2Frame& frame);
  void OnSent(const Http2Frame& frame);
  bool BeginStream(const Http2Frame& headers);
  // Moves the stream on, if it is open and not there already.
  void Advance(uint32_t stream, Stream to);
  void End(uint32_t stream);
  // How many streams wait.
  size_t Waiting() const { return incomplete_ + (blocked_ ? complete_ : 0); }
  // Adds what has changed to the count over all connections.
  void Count();

  HeaderLimit headers_;
  Http2FrameReader sent_;
  const absl::Time begin_ = absl::Now();
  bool acknowledged_ = false;
  bool blocked_;
  absl::Time blocked_since_ = absl::InfiniteFuture();
  uint32_t last_stream_ = 0;
  absl::flat_hash_map<uint32_t, Stream> streams_;  // The open ones.
  size_t incomplete_ = 0;                          // Of streams_.
  size_t complete_ = 0;
  size_t counted_ = 0;  // Of Waiting(), in the count over all connections.
};

// The limits that the configuration sets, for all connections of this process.
struct StreamLimits {
  size_t open = 4096;
  size_t waiting = 8192;
};
void SetStreamLimits(const StreamLimits& limits);

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_RPC_CONNECTION_LIMIT_H_
