// The cache's events as vLLM's ZMQ publisher would send them.
#ifndef PAGODA_SERVER_BRIDGES_ZMQ_BRIDGE_H_
#define PAGODA_SERVER_BRIDGES_ZMQ_BRIDGE_H_

#include <zmq.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/bridges/replay_server.h"
#include "server/bridges/router_feed.h"
#include "server/bridges/vllm_wire.h"
#include "server/bridges/zmq_endpoint.h"

namespace pagoda::server {

// A PUB socket with three frames a message: topic, sequence number (8 bytes, big-endian, from 0 on,
// one more for each message), payload (EncodeVllmBatch, of at most kFullPayloadBytes where a block
// does not take more); and, where it is wanted, a ReplayServer. Thread-safe.
//
// A subscriber that is queue_messages() behind misses further ones, and nobody waits for it: a hole
// in the numbers tells it to ask for a replay. ZMQ counts messages and not bytes; the count is such
// that the largest ones are `subscriber_bytes`. The same holds for the answers to a replay.
class ZmqBridge final : public RouterSink {
 public:
  struct Options {
    std::string endpoint;
    std::string replay_endpoint;  // Empty: no replays.
    ZmqMode mode = ZmqMode::kAuto;
    std::string topic;
    ReplayServer::Reply reply = ReplayServer::Reply::kPlain;
    uint32_t hwm = 1000;  // Messages that wait for a subscriber, at most,
    // and their bytes; at least one message waits, however large.
    uint64_t subscriber_bytes = 1'536 << 10;
    uint32_t buffer_steps = 10'000;
    uint64_t buffer_bytes = 64 << 20;
    VllmShape shape;
  };

  struct Stats {
    uint64_t batches = 0;       // Messages.
    uint64_t bytes = 0;         // Of payloads.
    uint64_t failed_sends = 0;  // Messages that the socket refused; a replay has them.
    ReplayServer::Stats replay;
  };

  // What a payload has at most, but for a block that takes more by itself. A few of them: many
  // small messages or few large ones come to about as many bytes.
  static constexpr size_t kFullPayloadBytes = 32 << 10;

  // Errors: INVALID_ARGUMENT where an endpoint cannot be had.
  static absl::StatusOr<std::unique_ptr<ZmqBridge>> Open(Options options);

  void Publish(const RouterBatchPtr& batch) override;

  Stats stats() const;
  // Where it is, with the port that was taken; empty where there are no replays.
  const std::string& endpoint() const { return endpoint_; }
  std::string replay_endpoint() const { return replay_ ? replay_->endpoint() : ""; }
  // How many messages wait for one subscriber, or for one replay.
  int queue_messages() const;

 private:
  explicit ZmqBridge(Options options);

  void Send(std::string bytes);

  const Options options_;
  ReplayRing ring_;
  zmq::context_t context_;
  zmq::socket_t
      publisher_;  // Used by one thread at a time: that which opens, then that of Publish.
  std::string endpoint_;
  uint64_t next_seq_ = 0;  // Publish's.
  std::unique_ptr<ReplayServer> replay_;

  std::atomic<uint64_t> batches_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> failed_sends_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ZMQ_BRIDGE_H_
