#include "server/bridges/zmq_bridge.h"

#include <utility>

#include "absl/memory/memory.h"
#include "server/bridges/zmq_socket.h"

namespace pagoda::server {
namespace {

// How long the last batches may take to their subscribers after the end.
constexpr int kLingerMs = 200;

}  // namespace

ZmqBridge::ZmqBridge(Options options)
    : options_(std::move(options)),
      ring_({.max_items = options_.buffer_steps, .max_bytes = options_.buffer_bytes}, 0),
      context_(1),
      publisher_(context_, zmq::socket_type::pub) {}

absl::StatusOr<std::unique_ptr<ZmqBridge>> ZmqBridge::Open(Options options) {
  auto bridge = absl::WrapUnique(new ZmqBridge(std::move(options)));
  const Options& set = bridge->options_;
  bridge->publisher_.set(zmq::sockopt::sndhwm, static_cast<int>(set.hwm));
  bridge->publisher_.set(zmq::sockopt::linger, kLingerMs);
  absl::StatusOr<std::string> endpoint = OpenEndpoint(bridge->publisher_, set.endpoint);
  if (!endpoint.ok()) return endpoint.status();
  bridge->endpoint_ = *std::move(endpoint);
  if (set.replay_endpoint.empty()) return bridge;
  absl::StatusOr<std::unique_ptr<ReplayServer>> replay =
      ReplayServer::Start({.endpoint = set.replay_endpoint, .topic = set.topic, .reply = set.reply},
                          bridge->context_, &bridge->ring_);
  if (!replay.ok()) return replay.status();
  bridge->replay_ = *std::move(replay);
  return bridge;
}

void ZmqBridge::Publish(const RouterBatchPtr& batch) {
  const uint64_t seq = next_seq_++;
  const auto payload = std::make_shared<const std::string>(EncodeVllmBatch(*batch, options_.shape));
  const SequenceFrame number = ToSequenceFrame(seq);
  // Counted and in the ring before it is sent: whoever has seen a number finds it there.
  batches_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(payload->size(), std::memory_order_relaxed);
  if (replay_ != nullptr) ring_.Push(seq, payload, payload->size());
  try {
    publisher_.send(zmq::buffer(options_.topic), zmq::send_flags::sndmore);
    publisher_.send(zmq::buffer(number), zmq::send_flags::sndmore);
    publisher_.send(zmq::buffer(*payload), zmq::send_flags::none);
  } catch (const zmq::error_t&) {
    failed_sends_.fetch_add(1, std::memory_order_relaxed);
  }
}

ZmqBridge::Stats ZmqBridge::stats() const {
  return {.batches = batches_,
          .bytes = bytes_,
          .failed_sends = failed_sends_,
          .replay = replay_ ? replay_->stats() : ReplayServer::Stats{}};
}

}  // namespace pagoda::server
