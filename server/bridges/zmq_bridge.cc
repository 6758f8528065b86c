#include "server/bridges/zmq_bridge.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "server/bridges/zmq_socket.h"

namespace pagoda::server {
namespace {

// The context's I/O threads, one for each socket, so that a long replay does not delay the events.
constexpr uint64_t kPublisherThread = 1 << 0;
constexpr uint64_t kReplayThread = 1 << 1;

}  // namespace

ZmqBridge::ZmqBridge(Options options)
    : options_(std::move(options)),
      ring_({.max_items = options_.buffer_steps, .max_bytes = options_.buffer_bytes},
            options_.first_number),
      context_(options_.replay_endpoint.empty() ? 1 : 2),
      publisher_(context_, zmq::socket_type::pub),
      next_seq_(options_.first_number),
      clear_seq_(options_.first_number) {}

absl::StatusOr<std::unique_ptr<ZmqBridge>> ZmqBridge::Open(Options options) {
  auto bridge = absl::WrapUnique(new ZmqBridge(std::move(options)));
  const Options& set = bridge->options_;
  bridge->publisher_.set(zmq::sockopt::affinity, kPublisherThread);
  bridge->publisher_.set(zmq::sockopt::sndhwm, bridge->queue_messages());
  absl::StatusOr<std::string> endpoint = OpenEndpoint(bridge->publisher_, set.endpoint, set.mode);
  if (!endpoint.ok()) return endpoint.status();
  bridge->endpoint_ = *std::move(endpoint);
  if (set.replay_endpoint.empty()) return bridge;
  absl::StatusOr<std::unique_ptr<ReplayServer>> replay =
      ReplayServer::Start({.endpoint = set.replay_endpoint,
                           .mode = set.mode,
                           .topic = set.topic,
                           .reply = set.reply,
                           .queue_messages = bridge->queue_messages(),
                           .io_threads = kReplayThread},
                          bridge->context_, &bridge->ring_);
  if (!replay.ok()) return replay.status();
  bridge->replay_ = *std::move(replay);
  return bridge;
}

int ZmqBridge::queue_messages() const {
  const uint64_t largest =
      LargestVllmPayload(options_.shape, kFullPayloadBytes) + options_.topic.size();
  const uint64_t fit = std::max<uint64_t>(1, options_.subscriber_bytes / largest);
  return static_cast<int>(std::min<uint64_t>(options_.hwm, fit));
}

void ZmqBridge::Publish(const RouterBatchPtr& batch) {
  if (BeginsWithClear(*batch)) clear_seq_ = next_seq_;
  for (std::string& payload : EncodeVllmBatch(*batch, options_.shape, kFullPayloadBytes)) {
    Send(std::move(payload));
  }
}

bool ZmqBridge::KeepsLastClear() const {
  return replay_ == nullptr || ring_.oldest() <= clear_seq_;
}

void ZmqBridge::Send(std::string bytes) {
  const uint64_t seq = next_seq_++;
  const auto payload = std::make_shared<const std::string>(std::move(bytes));
  const SequenceFrame number = ToSequenceFrame(seq);
  // The message is counted and put into the ring before it is sent, so that a subscriber that has
  // seen its number can replay it.
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
