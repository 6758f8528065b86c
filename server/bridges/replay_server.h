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
#include <vector>

#include "absl/status/statusor.h"
#include "base/event_poll.h"
#include "base/thread.h"
#include "server/bridges/numbered_ring.h"
#include "server/config/zmq_endpoint.h"

namespace pagoda::server {

// A sequence number on the wire: 8 bytes, big-endian.
using SequenceFrame = std::array<char, sizeof(uint64_t)>;
SequenceFrame ToSequenceFrame(uint64_t seq);

// The payloads, by sequence number.
using ReplayRing = NumberedRing<std::string>;

// Answers replay requests on a ROUTER socket, as vLLM's publisher does, but on its own thread. A
// long replay delays neither the events nor another replay. Thread-safe.
//
// A request has the frames [empty, first number: 8 bytes, big-endian], as a DEALER sends them.
// Answers, oldest first: [empty, seq, payload] for each payload from that number on, then [empty,
// 8 times 0xff, empty]. With Reply::kWithTopic, a topic precedes seq; it is empty in the last
// answer. Payloads that the ring no longer keeps are left out.
//
// The work and memory that a client can cause are bounded:
// 1. A frame of more than kMaxReceivedBytes ends the connection (OpenEndpoint).
// 2. A client's requests are answered one after the other. While kMaxWaiting requests of a client
//    wait, a further one is refused.
// 3. At most `queue_messages` answers are on their way to a client; the rest waits in the ring.
// 4. A client that does not read is given up after 30 s without progress. If another client asks
//    while there are kMaxReplays, the one without progress for the longest time is given up.
class ReplayServer {
 public:
  enum class Reply : uint8_t { kPlain, kWithTopic };

  struct Options {
    std::string endpoint;
    ZmqMode mode = ZmqMode::kAuto;
    std::string topic;
    Reply reply = Reply::kPlain;
    // The most answers to one client that are on their way.
    int queue_messages = 64;
    // The context's I/O threads to use, as a ZMQ_AFFINITY mask; 0: all.
    uint64_t io_threads = 0;
  };

  // The most requests of one client that wait, besides the one that is being answered.
  static constexpr size_t kMaxWaiting = 4;
  // The most clients at once.
  static constexpr size_t kMaxReplays = 256;

  struct Stats {
    uint64_t requests = 0;
    uint64_t refused = 0;     // Requests in a wrong form, and those above kMaxWaiting.
    uint64_t incomplete = 0;  // Replays that lacked payloads, or whose client was given up.
    uint64_t batches = 0;
  };

  // `context` and `ring` outlive the server. Errors: INVALID_ARGUMENT if the endpoint cannot be
  // opened; those of EventPoll::Create and of Thread::Start.
  static absl::StatusOr<std::unique_ptr<ReplayServer>> Start(Options options,
                                                             zmq::context_t& context,
                                                             const ReplayRing* ring);
  ~ReplayServer();

  Stats stats() const;
  // The socket's address, with the actual port.
  const std::string& endpoint() const { return endpoint_; }

 private:
  struct Replay;

  ReplayServer(Options options, const ReplayRing* ring, zmq::socket_t socket, EventPoll poll);

  void Run();
  // Takes at most kRequestsPerTurn requests, so that a flood of requests does not delay answers.
  // Reads the socket's state, after which its descriptor reports the next change.
  bool HasRequests();
  void TakeRequests();
  void Take(const std::vector<zmq::message_t>& frames);
  // Sends as many answers as possible without waiting. Returns whether an answer was sent or a
  // replay ended.
  bool Serve();
  // Sets where the replay begins, and whether this run's payloads are all there from then on.
  void Begin(Replay& replay, uint64_t first) const;
  // Returns whether the client's last replay has ended. Sets `sent` if an answer was sent.
  bool ServeOne(Replay& replay, bool& sent);
  enum class Sent : uint8_t { kDone, kLater, kGone };
  Sent Send(const std::string& client, uint64_t seq, const std::string& payload, bool last);

  const Options options_;
  const ReplayRing* const ring_;
  zmq::socket_t socket_;  // Used by the thread only.
  EventPoll poll_;        // Its source is the socket.
  std::string endpoint_;
  std::deque<Replay> replays_;  // Used by the thread only; one for each client.

  std::atomic<uint64_t> requests_ = 0;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> incomplete_ = 0;
  std::atomic<uint64_t> batches_ = 0;
  Thread thread_;  // Last: it uses the other members.
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_REPLAY_SERVER_H_
