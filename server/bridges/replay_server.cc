#include "server/bridges/replay_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "server/bridges/zmq_socket.h"

namespace pagoda::server {
namespace {

constexpr int kRequestsPerTurn = 256;
constexpr int kBatchesPerTurn = 16;
constexpr absl::Duration kPatience = absl::Seconds(30);

// The pause before the next try if no client can take another answer. It is kStalledWait if no
// client has read anything for kBusy.
constexpr absl::Duration kBusyWait = absl::Microseconds(500);  // EventPoll waits for 1 ms.
constexpr absl::Duration kStalledWait = absl::Milliseconds(10);
constexpr absl::Duration kBusy = absl::Milliseconds(100);

constexpr uint64_t kEndOfReplay = ~uint64_t{0};

// REQUIRES: the frame has the size of a SequenceFrame.
uint64_t FromSequenceFrame(const zmq::message_t& frame) {
  uint64_t seq = 0;
  for (const char byte : frame.to_string_view()) seq = seq << 8 | static_cast<uint8_t>(byte);
  return seq;
}

}  // namespace

SequenceFrame ToSequenceFrame(uint64_t seq) {
  SequenceFrame frame;
  for (auto byte = frame.rbegin(); byte != frame.rend(); ++byte, seq >>= 8) {
    *byte = static_cast<char>(seq & 0xff);
  }
  return frame;
}

// A client's requests. For the first one, the payloads below `next` have been sent.
struct ReplayServer::Replay {
  std::string client;
  uint64_t next = 0;
  bool incomplete = false;
  absl::Time progress;
  std::deque<uint64_t> waiting = {};  // The first numbers of its further requests.
};

absl::StatusOr<std::unique_ptr<ReplayServer>> ReplayServer::Start(Options options,
                                                                  zmq::context_t& context,
                                                                  const ReplayRing* ring) {
  zmq::socket_t socket(context, zmq::socket_type::router);
  // Makes a send to a client that is gone, or does not read, an error instead of a silent loss.
  socket.set(zmq::sockopt::router_mandatory, true);
  socket.set(zmq::sockopt::sndhwm, options.queue_messages);
  socket.set(zmq::sockopt::affinity, options.io_threads);
  const absl::StatusOr<std::string> endpoint = OpenEndpoint(socket, options.endpoint, options.mode);
  if (!endpoint.ok()) return endpoint.status();
  absl::StatusOr<EventPoll> poll = EventPoll::Create();
  if (!poll.ok()) return poll.status();
  const int fd = socket.get(zmq::sockopt::fd);
  auto server = absl::WrapUnique(
      new ReplayServer(std::move(options), ring, std::move(socket), *std::move(poll)));
  if (!server->poll_.Add(fd, EPOLLIN, &server->socket_)) {
    return absl::ErrnoToStatus(errno, "cannot wait for replay requests");
  }
  server->endpoint_ = *endpoint;
  absl::Status started = server->thread_.Start("pagoda-replay", [s = server.get()] { s->Run(); });
  if (!started.ok()) return started;
  return server;
}

ReplayServer::ReplayServer(Options options, const ReplayRing* ring, zmq::socket_t socket,
                           EventPoll poll)
    : options_(std::move(options)),
      ring_(ring),
      socket_(std::move(socket)),
      poll_(std::move(poll)) {}

ReplayServer::~ReplayServer() {
  poll_.Wake();
  thread_.Join();
}

ReplayServer::Stats ReplayServer::stats() const {
  return {
      .requests = requests_, .refused = refused_, .incomplete = incomplete_, .batches = batches_};
}

void ReplayServer::Run() {
  absl::Duration wait = absl::InfiniteDuration();
  absl::Time went = absl::InfinitePast();
  while (true) {
    // The descriptor reports only that the socket's state has changed, until the state is read.
    const bool has_requests = HasRequests();
    if (poll_.Wait(has_requests ? absl::ZeroDuration() : wait).is_woken) return;
    TakeRequests();
    wait = absl::ZeroDuration();
    if (Serve()) {
      went = absl::Now();
    } else if (!replays_.empty()) {
      wait = absl::Now() - went < kBusy ? kBusyWait : kStalledWait;
    }
    if (replays_.empty()) wait = absl::InfiniteDuration();
  }
}

bool ReplayServer::HasRequests() {
  while (true) {
    try {
      return (socket_.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

void ReplayServer::TakeRequests() {
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    std::vector<zmq::message_t> frames;
    zmq::message_t frame;
    if (!socket_.recv(frame, zmq::recv_flags::dontwait).has_value()) return;
    bool more = frame.more();
    frames.push_back(std::move(frame));
    for (; more; more = frame.more()) {
      // The rest of a message arrives with its first frame. Frames that Take ignores are not kept.
      (void)socket_.recv(frame, zmq::recv_flags::none);
      if (frames.size() <= 3) frames.emplace_back().copy(frame);
    }
    Take(frames);
  }
}

void ReplayServer::Take(const std::vector<zmq::message_t>& frames) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  if (frames.size() != 3 || frames[1].size() != 0 || frames[2].size() != sizeof(SequenceFrame)) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const uint64_t first = FromSequenceFrame(frames[2]);
  const std::string_view client = frames[0].to_string_view();
  const auto present =
      absl::c_find_if(replays_, [&](const Replay& replay) { return replay.client == client; });
  if (present != replays_.end()) {
    if (present->waiting.size() < kMaxWaiting) {
      present->waiting.push_back(first);
    } else {
      refused_.fetch_add(1, std::memory_order_relaxed);
    }
    return;
  }
  if (replays_.size() == kMaxReplays) {
    replays_.erase(absl::c_min_element(
        replays_, [](const Replay& a, const Replay& b) { return a.progress < b.progress; }));
    incomplete_.fetch_add(1, std::memory_order_relaxed);
  }
  replays_.push_back({.client = std::string(client), .progress = absl::Now()});
  Begin(replays_.back(), first);
}

void ReplayServer::Begin(Replay& replay, uint64_t first) const {
  // Numbers before the first belong to earlier runs, or to none.
  replay.next = std::max(first, ring_->first_number());
  replay.incomplete = replay.next < ring_->oldest();
}

bool ReplayServer::Serve() {
  bool went = false;
  for (size_t count = replays_.size(); count > 0; --count) {
    Replay replay = std::move(replays_.front());
    replays_.pop_front();
    bool sent = false;
    const bool over = ServeOne(replay, sent);
    if (sent) replay.progress = absl::Now();
    went = went || sent || over;
    if (!over) replays_.push_back(std::move(replay));
  }
  return went;
}

bool ReplayServer::ServeOne(Replay& replay, bool& sent) {
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const ReplayRing::Entry payload = ring_->From(replay.next);
    const bool last = payload.item == nullptr;
    // The ring has dropped payloads while the client did not read.
    if (!last && payload.number > replay.next) replay.incomplete = true;
    const Sent outcome = last ? Send(replay.client, kEndOfReplay, "", true)
                              : Send(replay.client, payload.number, *payload.item, false);
    if (outcome == Sent::kLater && absl::Now() - replay.progress < kPatience) return false;
    const bool given_up = outcome != Sent::kDone;
    sent = sent || !given_up;
    if (!last && !given_up) {
      batches_.fetch_add(1, std::memory_order_relaxed);
      replay.next = payload.number + 1;
      continue;
    }
    if (replay.incomplete || given_up) incomplete_.fetch_add(1, std::memory_order_relaxed);
    if (given_up || replay.waiting.empty()) return true;
    Begin(replay, replay.waiting.front());
    replay.waiting.pop_front();
  }
  return false;
}

ReplayServer::Sent ReplayServer::Send(const std::string& client, uint64_t seq,
                                      const std::string& payload, bool last) {
  const SequenceFrame number = ToSequenceFrame(seq);
  try {
    // If the socket takes the first frame, it takes the whole message.
    if (!socket_.send(zmq::buffer(client), zmq::send_flags::dontwait | zmq::send_flags::sndmore)
             .has_value()) {
      return Sent::kLater;
    }
    socket_.send(zmq::message_t(), zmq::send_flags::sndmore);
    if (options_.reply == Reply::kWithTopic) {
      socket_.send(zmq::buffer(last ? std::string() : options_.topic), zmq::send_flags::sndmore);
    }
    socket_.send(zmq::buffer(number), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(payload), zmq::send_flags::none);
  } catch (const zmq::error_t& error) {
    if (error.num() != EHOSTUNREACH) throw;
    return Sent::kGone;
  }
  return Sent::kDone;
}

}  // namespace pagoda::server
