// One connection to a server that speaks RESP.
#ifndef PAGODA_POOLS_STORE_REDIS_CONNECTION_H_
#define PAGODA_POOLS_STORE_REDIS_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "pools/store/cluster_map.h"
#include "pools/store/redis_call.h"
#include "pools/store/redis_options.h"
#include "pools/store/redis_socket.h"

namespace pagoda {

// A connection from its connect to its end. Values go straight from the socket into the calls'
// memory and back. Only for the thread of its store. Nothing here blocks.
//
// 1. Replies come in the order of the calls.
// 2. Memory of a call without a batch is not touched.
class RedisConnection {
 public:
  enum class State : uint8_t {
    kConnecting,  // Also the TLS handshake.
    kSettingUp,   // Waits for the replies to AUTH, READONLY and PING.
    kReady,
    kClosed,
  };
  // What happens to it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Called within Handle.
    virtual void OnReady(RedisConnection& connection) = 0;
    virtual void OnReply(RedisConnection& connection, std::unique_ptr<RedisCall> call) = 0;
    // It closes, and fd() is still open. Called by whatever closes it.
    virtual void OnClose(RedisConnection& connection) = 0;
  };

  // `is_replica`: reads from a replica are asked for. The references must outlive this object.
  RedisConnection(const RedisOptions& options, RedisAddress address, bool is_replica, Owner& owner);

  // Begins. On failure it is closed. `password`: AUTH is sent if it or the username is not empty.
  void Connect(const SocketAddress& address, TlsContext* tls, const std::string& password,
               absl::Time now);

  State state() const { return state_; }
  bool is_ready() const { return state_ == State::kReady; }
  const RedisAddress& address() const { return address_; }
  int fd() const { return socket_ == nullptr ? -1 : socket_->fd(); }
  size_t in_flight() const { return in_flight_.size(); }
  // Whether its user has no right to READONLY. Then a replica answers MOVED to each read.
  bool is_readonly_refused() const { return is_readonly_refused_; }
  // Whether it takes another call now.
  bool HasRoom() const;
  // Why it closed.
  const absl::Status& error() const { return error_; }

  // REQUIRES: HasRoom(). The bytes go out with the next Flush.
  void Send(std::unique_ptr<RedisCall> call, absl::Time now);
  void Flush();
  // The socket is readable or writable, or has_more().
  void Handle(absl::Time now);
  // Whether Handle must be called again without waiting.
  bool has_more() const { return has_more_; }
  // Whether it waits for the socket to be writable. It always waits for it to be readable.
  bool wants_write() const;
  // When it must be closed if its oldest call has no reply by then, or if it is not ready;
  // InfiniteFuture if it waits for nothing. So a server that sends a byte a second cannot hold it.
  absl::Time stalled_at() const { return stalled_at_; }

  // The call's batch has ended. Stops the use of the call's memory, if needed by closing. Can
  // destroy the call. REQUIRES: the call was sent here, and has no batch.
  void Abandon(RedisCall& call);
  // Ends the connection. Calls in flight stay until TakeCalls.
  void Close(absl::Status why);
  // The calls that got no reply. REQUIRES: closed.
  std::vector<std::unique_ptr<RedisCall>> TakeCalls();

 private:
  // A part of what is to be sent.
  struct Segment {
    const RedisCall* call;
    absl::Span<const std::byte> bytes;
  };
  enum class Reading : uint8_t { kReply, kValue, kLineEnd };

  absl::Status Receive(absl::Time now);
  absl::StatusOr<size_t> ReadMore();
  absl::Status Parse(absl::Time now);
  absl::StatusOr<bool> ParseReply(absl::Time now);
  void TakeValue();
  void EndCall(resp::Value reply, absl::Time now);
  void EndSetUp(const RedisCall& call);
  void SetUp(absl::Time now);
  void SendSetUp(RedisCommand command, absl::Span<const absl::string_view> arguments,
                 absl::Time now);
  void Append(const RedisCall& call, absl::Span<const std::byte> bytes);
  void MakeRoom(size_t bytes);
  absl::string_view received() const { return {buffer_.get() + begin_, end_ - begin_}; }

  const RedisOptions& options_;
  const RedisAddress address_;
  const bool is_replica_;
  Owner& owner_;

  State state_ = State::kConnecting;
  absl::Status error_;
  std::unique_ptr<RedisSocket> socket_;
  std::string password_;  // Until it is sent.
  absl::Time stalled_at_ = absl::InfiniteFuture();
  bool has_more_ = false;
  int set_up_calls_ = 0;  // In flight.
  bool is_readonly_refused_ = false;

  std::deque<std::unique_ptr<RedisCall>> in_flight_;
  std::deque<Segment> segments_;
  size_t front_sent_ = 0;        // Bytes of segments_.front().
  size_t unsent_bytes_ = 0;      // The bytes of all segments, without front_sent_.
  uint64_t expected_bytes_ = 0;  // The bytes of the blocks that gets in flight ask for.

  // Received bytes that are not parsed: [begin_, end_).
  std::unique_ptr<char[]> buffer_;
  size_t buffer_bytes_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
  resp::Scanner scanner_;  // Scans the reply that has begun.

  Reading reading_ = Reading::kReply;
  uint64_t value_left_ = 0;  // Bytes of the value that have not arrived.
};

}  // namespace pagoda

#endif  // PAGODA_POOLS_STORE_REDIS_CONNECTION_H_
