// The connection of another daemon, or of any other client.
#ifndef PAGODA_SERVER_PEERS_PEER_CONNECTION_H_
#define PAGODA_SERVER_PEERS_PEER_CONNECTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "pools/store/redis_socket.h"
#include "server/peers/command_reader.h"
#include "server/peers/peer_commands.h"
#include "server/peers/reply_queue.h"

namespace pagoda::server {

// Nothing here blocks. Only for the server's thread.
//
// Invariants
// 1. A command is run only when the replies before it have been sent, except for short replies, of
//    which kShortReplies bytes can wait. So a client that does not read costs no more memory, and
//    a value is hashed directly before it is sent.
// 2. A turn moves at most about kTurnBytes in each direction and runs at most kTurnCommands
//    commands.
class PeerConnection {
 public:
  static constexpr size_t kShortReplies = 16 << 10;
  static constexpr size_t kTurnBytes = 2 << 20;
  static constexpr int kTurnCommands = 64;

  // What the connection needs next.
  enum class Next : uint8_t {
    kTurn,    // Another turn: there is more to do.
    kSocket,  // A turn when the socket is readable, or writable if wants_write().
    kClose,   // It has ended.
  };

  // `commands`, `stats` and `buffer` outlive the connection. `buffer`: ReplyQueue::kBufferBytes,
  // which all connections of the thread share.
  PeerConnection(std::unique_ptr<RedisSocket> socket, PeerSession session, PeerCommands* commands,
                 PeerStats* stats, absl::Span<std::byte> buffer, absl::Time now)
      : socket_(std::move(socket)),
        session_(std::move(session)),
        commands_(*commands),
        stats_(*stats),
        buffer_of_sends_(buffer),
        opened_(now),
        progress_(now) {}

  int fd() const { return socket_->fd(); }
  const PeerSession& session() const { return session_; }
  Next Turn(absl::Time now);
  // With Next::kSocket: whether it waits for the socket to be writable. Then it does not read.
  bool wants_write() const { return socket_->wants_write(); }
  // Whether a value of the cache is being sent.
  bool Uses(const PeerCache* cache) const { return out_.Uses(cache); }

  bool is_ready() const { return is_ready_; }  // The TLS handshake is done.
  absl::Time opened() const { return opened_; }
  absl::Time progress() const { return progress_; }  // When bytes were moved last.
  bool is_sending() const { return !out_.empty(); }
  // When the last command was answered, and the bytes that were not sent then.
  absl::Time answered() const { return answered_; }
  uint64_t answer_size() const { return answer_size_; }
  // Why it ended; OK if the peer or QUIT closed it.
  const absl::Status& error() const { return error_; }

 private:
  enum class Sent : uint8_t { kAll, kTurnIsOver, kBlocked, kFailed };

  Sent Send(absl::Time now);
  // Runs commands until replies must be sent first. False: the socket has no more bytes now.
  bool RunCommands(absl::Time now);
  // False: there are no bytes.
  bool Receive(absl::Time now);
  void Fail(absl::Status why);

  const std::unique_ptr<RedisSocket> socket_;
  PeerSession session_;
  PeerCommands& commands_;
  PeerStats& stats_;
  const absl::Span<std::byte> buffer_of_sends_;
  const absl::Time opened_;
  absl::Time progress_;
  absl::Time answered_ = absl::InfinitePast();
  uint64_t answer_size_ = 0;
  bool is_ready_ = false;
  bool is_ended_ = false;
  absl::Status error_;

  // This turn's bytes left to send, bytes received and commands left to run.
  size_t bytes_left_ = 0;
  size_t received_ = 0;
  int commands_left_ = 0;

  std::array<char, 16 << 10> buffer_;
  size_t begin_ = 0, end_ = 0;  // What has not been taken of it.
  CommandReader reader_;
  ReplyQueue out_;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_PEERS_PEER_CONNECTION_H_
