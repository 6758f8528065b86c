// The speed of the bridge to vLLM's routers, from events that are appended to the log to a SUB
// socket in another process. deploy/bench.sh zmq_bridge runs it.
#include <zmq.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "events/event_log.h"
#include "server/bridges/router_feed.h"
#include "server/bridges/zmq_bridge.h"
#include "tests/bench/figure.h"
#include "tests/bench/service/child_process.h"

namespace pagoda::bench {
namespace {

using server::RouterFeed;
using server::ZmqBridge;

constexpr uint32_t kTokensPerBlock = 16;
constexpr uint32_t kBlocksPerEvent = 8;
// From this number on, each stored event comes with a removal.
constexpr uint32_t kCachedBlocks = 8'192;
constexpr uint32_t kDefaultBlocks = 400'000;
constexpr size_t kEventsPerBatch = 32;
constexpr uint32_t kMaxQueue = 1'000'000;  // Nothing is dropped.
constexpr uint64_t kMaxQueueBytes = uint64_t{1} << 40;
constexpr char kReaderFlag[] = "--reader";

// The end of a payload whose last event is AllBlocksCleared. The first message of a run ends so,
// and the last one of the benchmark.
constexpr std::string_view kClearedPayload("AllBlocksCleared\0", 17);
constexpr int kClears = 2;

// --- The reader ---

// Prints "here" at the first message, and the number of the last message when that arrives.
int Read(const std::string& endpoint) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::sub);
  socket.set(zmq::sockopt::rcvhwm, static_cast<int>(kMaxQueue));
  socket.set(zmq::sockopt::subscribe, "");
  socket.connect(endpoint);
  std::optional<uint64_t> last;
  int clears = 0;
  while (clears < kClears) {
    zmq::message_t topic, frame, payload;
    (void)socket.recv(topic);
    (void)socket.recv(frame);
    (void)socket.recv(payload);
    uint64_t seq = 0;
    for (const char byte : frame.to_string_view()) seq = seq << 8 | static_cast<uint8_t>(byte);
    if (!last.has_value()) {
      std::puts("here");
      std::fflush(stdout);
    } else if (seq != *last + 1) {
      std::fprintf(stderr, "batch %llu is missing\n", static_cast<unsigned long long>(*last) + 1);
      return 1;
    }
    last = seq;
    if (payload.to_string_view().ends_with(kClearedPayload)) ++clears;
  }
  std::puts(absl::StrCat(*last).c_str());
  std::fflush(stdout);
  WaitUntilStdinCloses();
  return 0;
}

class Reader {
 public:
  // `warm_up()` sends a message. The first messages are lost, because the subscription is not there
  // yet.
  template <class Send>
  Reader(const std::string& endpoint, const Send& warm_up) : process_({kReaderFlag, endpoint}) {
    std::atomic<bool> here = false;
    std::thread sender([&] {
      while (!here) {
        warm_up();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    PAGODA_CHECK(process_.ReadLine() == "here", "the reader says that it is there");
    here = true;
    sender.join();
  }
  // The number of the last message, once it and all earlier ones have arrived.
  uint64_t Last() {
    uint64_t last = 0;
    PAGODA_CHECK(absl::SimpleAtoi(process_.ReadLine(), &last), "the reader says a number");
    return last;
  }

 private:
  ChildProcess process_;
};

// --- What happens ---

BlockHash HashOf(uint64_t number) {
  return BlockHash((number + 1) * 0x9e3779b97f4a7c15);  // Long, as hashes are.
}

StoredEvent Stored(uint32_t first) {
  StoredEvent stored;
  for (uint32_t i = first; i < first + kBlocksPerEvent; ++i) {
    stored.blocks.push_back({.id = BlockId(i % (2 * kCachedBlocks)),
                             .hash = HashOf(i),
                             .token_count = kTokensPerBlock});
    for (uint32_t t = 0; t < kTokensPerBlock; ++t) stored.tokens.push_back((i * 31 + t) % 151'936);
  }
  return stored;
}

RemovedEvent Removed(uint32_t first) {
  RemovedEvent removed;
  for (uint32_t i = first; i < first + kBlocksPerEvent; ++i) {
    removed.blocks.push_back(BlockId(i % (2 * kCachedBlocks)));
    removed.hashes.push_back(HashOf(i));
  }
  return removed;
}

// `blocks` blocks are stored, and all but the last kCachedBlocks are removed. Then a reset.
std::vector<EventLog::Batch> MakeEvents(uint32_t blocks) {
  std::vector<EventLog::Batch> batches(1);
  uint64_t revision = 0;
  const auto add = [&](decltype(Event::what) what) {
    if (batches.back().size() == kEventsPerBatch) batches.emplace_back();
    batches.back().Add({.revision = Revision(++revision), .what = std::move(what)});
  };
  for (uint32_t first = 0; first < blocks; first += kBlocksPerEvent) {
    if (first >= kCachedBlocks) add(Removed(first - kCachedBlocks));
    add(Stored(first));
  }
  add(RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow});
  return batches;
}

// --- The figures ---

std::string Endpoint() { return absl::StrCat("ipc:///tmp/pagoda-zmq-bench-", getpid()); }

server::VllmShape Shape() {
  return {.tokens_per_block = kTokensPerBlock, .windows = {kFullAttention}};
}

server::RouterBatchPtr WarmUp() {
  auto batch = std::make_shared<server::RouterBatch>();
  batch->events = {{.what = server::BlocksRemoved{.hashes = {BlockHash(1)}}}};
  return batch;
}

// Keeps the published bytes.
class Recorder final : public server::RouterSink {
 public:
  void Publish(const server::RouterBatchPtr& batch) override {
    for (std::string& payload : EncodeVllmBatch(*batch, Shape(), ZmqBridge::kFullPayloadBytes)) {
      payloads_.push_back(std::move(payload));
    }
  }
  const std::vector<std::string>& payloads() const { return payloads_; }

 private:
  std::vector<std::string> payloads_;
};

RouterFeed::Options FeedOptions() {
  return {.cache = {.tokens_per_block = kTokensPerBlock, .windows = {kFullAttention}},
          .flush_interval = absl::Milliseconds(2),
          .read_snapshot = [](const SnapshotPosition&) -> SnapshotPiece {
            PAGODA_CHECK(false, "the log keeps everything");
            return {};
          }};
}

constexpr EventLog::Limits kEverything = {.max_events = size_t{1} << 30,
                                          .max_bytes = size_t{1} << 40};

// Seconds from the first append until the reader has the last batch.
double BridgeSeconds(uint32_t blocks) {
  std::vector<EventLog::Batch> batches = MakeEvents(blocks);
  auto bridge = ZmqBridge::Open({.endpoint = Endpoint(),
                                 .topic = "kv",
                                 .hwm = kMaxQueue,
                                 .subscriber_bytes = kMaxQueueBytes,
                                 // It keeps everything, so the feed repeats nothing.
                                 .buffer_steps = uint32_t{1} << 30,
                                 .buffer_bytes = uint64_t{1} << 40,
                                 .shape = Shape()});
  PAGODA_CHECK(bridge.ok(), "there is an endpoint");
  Reader reader((*bridge)->endpoint(), [&] { (*bridge)->Publish(WarmUp()); });
  EventLog log(kEverything);
  RouterFeed feed(FeedOptions(), &log, {bridge->get()});
  const double seconds = Seconds([&] {
    for (EventLog::Batch& batch : batches) log.Append(std::move(batch));
    PAGODA_CHECK(reader.Last() + 1 == (*bridge)->stats().batches, "every batch has come");
  });
  PAGODA_CHECK(feed.stats().stored_blocks == blocks, "every block was told of");
  return seconds;
}

// The same bytes, encoded in advance, over the same kind of socket.
double PlainSeconds(const std::vector<std::string>& payloads) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::pub);
  socket.set(zmq::sockopt::sndhwm, static_cast<int>(kMaxQueue));
  socket.bind(Endpoint());
  uint64_t seq = 0;
  const auto send = [&](const std::string& payload) {
    const server::SequenceFrame number = server::ToSequenceFrame(seq++);
    socket.send(zmq::str_buffer("kv"), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(number), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(payload), zmq::send_flags::none);
  };
  Reader reader(Endpoint(), [&] { send("warm-up"); });
  return Seconds([&] {
    for (const std::string& payload : payloads) send(payload);
    PAGODA_CHECK(reader.Last() + 1 == seq, "every batch has come");
  });
}

std::vector<std::string> MakePayloads(uint32_t blocks) {
  EventLog log(kEverything);
  for (EventLog::Batch& batch : MakeEvents(blocks)) log.Append(std::move(batch));
  Recorder recorder;
  { const RouterFeed feed(FeedOptions(), &log, {&recorder}); }
  return recorder.payloads();
}

void Run(uint32_t blocks) {
  const std::vector<std::string> payloads = MakePayloads(blocks);
  const double bridge = MedianSeconds([&] { return BridgeSeconds(blocks); });
  const double plain = MedianSeconds([&] { return PlainSeconds(payloads); });
  Print({.id = "zmq_bridge",
         .value = blocks / bridge,
         .unit = "blocks/s",
         .yardstick = "the same payloads, encoded before, over a PUB socket",
         .yardstick_value = blocks / plain});
}

}  // namespace
}  // namespace pagoda::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == pagoda::bench::kReaderFlag) {
    return pagoda::bench::Read(argv[2]);
  }
  CLI::App app{"zmq_bridge_bench: the speed of the bridge to vLLM's routers"};
  std::string figure;
  uint32_t blocks = pagoda::bench::kDefaultBlocks;
  app.add_option("FIGURE", figure, "Only figures whose ids begin so; there is zmq_bridge");
  app.add_option("--blocks", blocks, "Blocks that are stored")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (std::string_view("zmq_bridge").starts_with(figure)) pagoda::bench::Run(blocks);
}
