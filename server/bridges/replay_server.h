// The last batches of a ZMQ stream, for subscribers that missed some.
#ifndef PAGODA_SERVER_BRIDGES_REPLAY_SERVER_H_
#define PAGODA_SERVER_BRIDGES_REPLAY_SERVER_H_

#include <zmq.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/bridges/numbered_ring.h"
#include "server/bridges/zmq_endpoint.h"

namespace pagoda::server {

// A sequence number as it travels: 8 bytes, big-endian.
using SequenceFrame = std::array<char, sizeof(uint64_t)>;
SequenceFrame ToSequenceFrame(uint64_t seq);

// The bytes of the batches, by sequence number.
using ReplayRing = NumberedRing<std::string>;

// Answers replay requests on a ROUTER socket, as vLLM's publisher does, but on a thread of its own:
// a long replay holds up neither the events nor another replay. Thread-safe.
//
// A request has the frames [empty, first number: 8 bytes, big-endian], as a DEALER sends them.
// Answers, oldest first: [empty, seq, payload] for each payload from that number on, then [empty,
// 8 times 0xff, empty]; with Reply::kWithTopic a topic stands before seq, an empty one in the last
// answer. What the ring has lost is left out.
//
// What a client can make it do is bounded. A frame of more than a few bytes ends the connection
// (OpenEndpoint). A client's requests are answered one after the other, and a fifth one while four
// wait is refused. `queue_messages` answers are on their way to a client; the rest waits in the
// ring. A client that does not read is waited for, and given up after 30 s without progress, or
// when it is that of 256 clients which has made none for longest and another one asks.
class ReplayServer {
 public:
  enum class Reply : uint8_t { kPlain, kWithTopic };

  struct Options {
    std::string endpoint;
    ZmqMode mode = ZmqMode::kAuto;
    std::string topic;
    Reply reply = Reply::kPlain;
    // Answers to one client that are on their way.
    int queue_messages = 64;
    // Of the context's, as ZMQ_AFFINITY has them; 0 are all.
    uint64_t io_threads = 0;
  };

  // Requests of one client that wait, its present one not counted.
  static constexpr size_t kMaxWaiting = 4;
  // Clients at once.
  static constexpr size_t kMaxReplays = 256;

  struct Stats {
    uint64_t requests = 0;
    uint64_t refused = 0;     // Requests in another form, and those above kMaxWaiting.
    uint64_t incomplete = 0;  // Began behind what was asked for, or the client was given up.
    uint64_t batches = 0;
  };

  // `context` and `ring` outlive the server. Errors: INVALID_ARGUMENT where the endpoint cannot be
  // had.
  static absl::StatusOr<std::unique_ptr<ReplayServer>> Start(Options options,
                                                             zmq::context_t& context,
                                                             const ReplayRing* ring);
  ~ReplayServer();

  Stats stats() const;
  // Where it listens, with the port that was taken.
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Replay;

  ReplayServer(Options options, const ReplayRing* ring, zmq::socket_t socket, int stop_fd);

  void Run();
  // Some of the requests that have come: who sends them without end holds up nobody's answers.
  void TakeRequests();
  void Take(const std::vector<zmq::message_t>& frames);
  // Sends what goes without waiting; whether anything went or a replay is over.
  bool Serve();
  // Whether the client's last replay is over; `sent` becomes true where something was sent.
  bool ServeOne(Replay& replay, bool& sent);
  enum class Sent : uint8_t { kDone, kLater, kGone };
  Sent Send(const std::string& client, uint64_t seq, const std::string& payload, bool last);

  const Options options_;
  const ReplayRing* const ring_;
  zmq::socket_t socket_;  // The thread's.
  const int stop_fd_;
  std::string endpoint_;
  std::deque<Replay> replays_;  // The thread's; of each client one.

  std::atomic<uint64_t> requests_ = 0;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> incomplete_ = 0;
  std::atomic<uint64_t> batches_ = 0;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_REPLAY_SERVER_H_
