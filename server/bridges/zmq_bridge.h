// Publishes the cache's events over ZMQ, as vLLM's publisher does.
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
#include "server/config/zmq_endpoint.h"

namespace pagoda::server {

// A PUB socket and, if configured, a ReplayServer. A message has three frames: the topic; the
// sequence number (8 bytes, big-endian, one more for each message); the payload
// (EncodeVllmBatch, at most kFullPayloadBytes unless one block takes more). Thread-safe.
//
// A subscriber that is queue_messages() behind misses further messages, and the daemon does not
// wait for it. A gap in the numbers shows the subscriber that it needs a replay. ZMQ counts
// messages and not bytes; queue_messages() is chosen so that the largest messages take
// `subscriber_bytes`. The same holds for the answers to a replay.
class ZmqBridge final : public RouterSink {
 public:
  struct Options {
    std::string endpoint;
    std::string replay_endpoint;  // Empty: no replays.
    ZmqMode mode = ZmqMode::kAuto;
    std::string topic;
    ReplayServer::Reply reply = ReplayServer::Reply::kPlain;
    // The most messages that wait for a subscriber, and the most bytes of them. One message can
    // always wait, regardless of its size.
    uint32_t hwm = 1000;
    uint64_t subscriber_bytes = 1'536 << 10;
    uint32_t buffer_steps = 10'000;
    uint64_t buffer_bytes = 64 << 20;
    // The number of the first message. It is above all numbers of the daemon's earlier runs, so
    // that a subscriber of an earlier run sees a gap and asks for a replay.
    uint64_t first_number = 0;
    VllmShape shape;
  };

  struct Stats {
    uint64_t batches = 0;       // Messages.
    uint64_t bytes = 0;         // Bytes of payloads.
    uint64_t failed_sends = 0;  // Messages that the socket refused. A replay contains them.
    ReplayServer::Stats replay;
  };

  // The most bytes of a payload, unless one block takes more. The size is small, so that a full
  // queue has about the same number of bytes with many small messages as with few large ones.
  static constexpr size_t kFullPayloadBytes = 32 << 10;

  // Errors: INVALID_ARGUMENT if an endpoint cannot be opened.
  static absl::StatusOr<std::unique_ptr<ZmqBridge>> Open(Options options);

  void Publish(const RouterBatchPtr& batch) override;
  // True without replays: a late subscriber then gets no earlier message anyway.
  bool KeepsLastClear() const override;

  Stats stats() const;
  // The sockets' addresses, with the actual ports. replay_endpoint() is empty without replays.
  const std::string& endpoint() const { return endpoint_; }
  std::string replay_endpoint() const { return replay_ ? replay_->endpoint() : ""; }
  // The most messages that wait for one subscriber, or for one replay.
  int queue_messages() const;

 private:
  explicit ZmqBridge(Options options);

  void Send(std::string bytes);

  const Options options_;
  ReplayRing ring_;
  zmq::context_t context_;
  zmq::socket_t publisher_;  // Used by one thread at a time: first Open's, then Publish's.
  std::string endpoint_;
  // Used on the feed's thread only.
  uint64_t next_seq_;
  uint64_t clear_seq_;  // The number of the last message that begins with AllBlocksCleared.
  std::unique_ptr<ReplayServer> replay_;

  std::atomic<uint64_t> batches_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> failed_sends_ = 0;
};

}  // namespace pagoda::server

#endif  // PAGODA_SERVER_BRIDGES_ZMQ_BRIDGE_H_
