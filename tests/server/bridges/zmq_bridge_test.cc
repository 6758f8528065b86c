#include "server/bridges/zmq_bridge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/config/zmq_endpoint.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr char kAnyPort[] = "tcp://127.0.0.1:*";
const std::string kEnd(8, '\xff');

std::string Seq(uint64_t seq) {
  const SequenceFrame frame = ToSequenceFrame(seq);
  return {frame.begin(), frame.end()};
}

// Batch number `number`: the removal of this many blocks, whose hashes are the number.
RouterBatchPtr Batch(uint64_t number, size_t blocks = 1) {
  auto batch = std::make_shared<RouterBatch>();
  batch->number = number;
  batch->events = {
      {.what = BlocksRemoved{.hashes = std::vector<BlockHash>(blocks, BlockHash(number))}}};
  return batch;
}

VllmShape Shape() { return {.tokens_per_block = 1, .windows = {kFullAttention}}; }

std::string Payload(uint64_t number, size_t blocks = 1) {
  return EncodeVllmBatch(*Batch(number, blocks), Shape(), ZmqBridge::kFullPayloadBytes).at(0);
}

ZmqBridge::Options Options() {
  return {.endpoint = kAnyPort, .replay_endpoint = kAnyPort, .topic = "kv@pod@m", .shape = Shape()};
}

std::unique_ptr<ZmqBridge> Open(ZmqBridge::Options options) {
  auto bridge = ZmqBridge::Open(std::move(options));
  EXPECT_TRUE(bridge.ok()) << bridge.status();
  return *std::move(bridge);
}

// With 0, libzmq 4.3 aborts if a connection is lost while its socket is being closed in the middle
// of a message of several frames (session_base.cpp, clean_pipes).
constexpr int kLingerMs = 200;

// The socket of a subscriber or a client.
class Peer {
 public:
  // `hwm`: the messages that it accepts before they are received; 0: no limit.
  Peer(zmq::socket_type type, const std::string& endpoint, int hwm = 1000)
      : socket_(context_, type) {
    socket_.set(zmq::sockopt::linger, kLingerMs);
    socket_.set(zmq::sockopt::rcvhwm, hwm);
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(kPatience.count()));
    if (type == zmq::socket_type::sub) socket_.set(zmq::sockopt::subscribe, "kv@");
    socket_.connect(endpoint);
  }

  void Send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      const bool more = i + 1 < frames.size();
      socket_.send(zmq::buffer(frames[i]), more ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }
  // Sends a message of two frames.
  void SendUnlessFull(const std::array<std::string, 2>& frames) {
    using zmq::send_flags;
    if (socket_.send(zmq::buffer(frames[0]), send_flags::sndmore | send_flags::dontwait)) {
      socket_.send(zmq::buffer(frames[1]), send_flags::none);
    }
  }
  // The frames of the next message; empty if none arrives in time.
  std::vector<std::string> Receive() {
    std::vector<std::string> frames;
    zmq::message_t frame;
    do {
      if (!socket_.recv(frame).has_value()) return {};
      frames.push_back(frame.to_string());
    } while (frame.more());
    return frames;
  }
  bool Arrived() {
    zmq::pollitem_t item{socket_.handle(), 0, ZMQ_POLLIN, 0};
    return zmq::poll(&item, 1, std::chrono::milliseconds(20)) > 0;
  }
  // The answers to a request for a replay, including the last.
  std::vector<std::vector<std::string>> Replay(uint64_t first) {
    Send({"", Seq(first)});
    std::vector<std::vector<std::string>> answers;
    do {
      answers.push_back(Receive());
      if (answers.back().size() < 3) return answers;
    } while (answers.back()[answers.back().size() - 2] != kEnd);
    return answers;
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
};

TEST(SequenceFrameTest, IsBigEndian) {
  EXPECT_EQ(Seq(0x0102030405060708), std::string("\1\2\3\4\5\6\7\10", 8));
  EXPECT_EQ(Seq(~uint64_t{0}), kEnd);
}

TEST(EndpointTest, BindsWhereVllmDoes) {
  for (const char* bound : {"tcp://*:5557", "tcp://[::1]:5557", "tcp://127.0.0.1:*", "ipc:///tmp/s",
                            "inproc://events"}) {
    EXPECT_TRUE(Listens(bound, ZmqMode::kAuto)) << bound;
    EXPECT_TRUE(CheckEndpoint(bound).ok()) << bound;
  }
  for (const char* connected : {"tcp://127.0.0.1:5557", "tcp://router.example:5557"}) {
    EXPECT_FALSE(Listens(connected, ZmqMode::kAuto)) << connected;
    EXPECT_TRUE(Listens(connected, ZmqMode::kListen)) << connected;
    EXPECT_TRUE(CheckEndpoint(connected).ok()) << connected;
  }
  for (const char* bad : {"", "tcp://", "tcp://host", "tcp://host:", "tcp://:1", "tcp://host:port",
                          "ipc://", "inproc://", "udp://host:1", "127.0.0.1:5557"}) {
    EXPECT_FALSE(CheckEndpoint(bad).ok()) << bad;
  }
}

TEST(EndpointTest, AModeGoesBeforeTheEndpoint) {
  EXPECT_FALSE(Listens("ipc:///tmp/s", ZmqMode::kConnect));
  EXPECT_FALSE(Listens("tcp://[::1]:5557", ZmqMode::kConnect));
}

TEST(EndpointTest, KnowsWhatStaysOnThisMachine) {
  for (const char* here : {"ipc:///tmp/s", "inproc://x", "tcp://127.0.0.1:1", "tcp://[::1]:1",
                           "tcp://127.0.0.1:*", "tcp://localhost:1"}) {
    EXPECT_TRUE(StaysHere(here)) << here;
  }
  for (const char* away : {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://10.0.0.1:1",
                           "tcp://router.example:1", "tcp://eth0:1"}) {
    EXPECT_FALSE(StaysHere(away)) << away;
  }
}

TEST(EndpointTest, KnowsWhichSocketsHaveAFile) {
  EXPECT_EQ(SocketFile("ipc:///tmp/s"), "/tmp/s");
  for (const char* without : {"ipc://@s", "inproc://x", "tcp://127.0.0.1:1"}) {
    EXPECT_EQ(SocketFile(without), "") << without;
  }
}

TEST(ZmqBridgeTest, ABatchHasThreeFrames) {
  const auto bridge = Open(Options());
  Peer subscriber(zmq::socket_type::sub, bridge->endpoint());
  uint64_t published = 0;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!subscriber.Arrived() && absl::Now() < deadline) bridge->Publish(Batch(published++));
  std::vector<std::string> frames = subscriber.Receive();
  ASSERT_EQ(frames.size(), 3u);
  uint64_t seq = 0;
  while (seq < published && Seq(seq) != frames[1]) ++seq;
  ASSERT_LT(seq, published) << "the number is one of those that were published";
  for (bridge->Publish(Batch(published++)); seq < published; ++seq) {
    EXPECT_THAT(frames, ElementsAre("kv@pod@m", Seq(seq), Payload(seq)));
    if (seq + 1 < published) frames = subscriber.Receive();
  }
  EXPECT_EQ(bridge->stats().batches, published);
  EXPECT_EQ(bridge->stats().failed_sends, 0u);
}

TEST(ZmqBridgeTest, ALateSubscriberAsksForWhatItMissed) {
  const auto bridge = Open(Options());
  for (uint64_t number = 0; number < 5; ++number) bridge->Publish(Batch(number));
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  EXPECT_THAT(client.Replay(3),
              ElementsAre(ElementsAre("", Seq(3), Payload(3)), ElementsAre("", Seq(4), Payload(4)),
                          ElementsAre("", kEnd, "")));
  EXPECT_EQ(client.Replay(0).size(), 6u);
  EXPECT_EQ(client.Replay(5).size(), 1u) << "what is not yet there is nothing";
  EXPECT_EQ(bridge->stats().replay.requests, 3u);
  EXPECT_EQ(bridge->stats().replay.batches, 7u);
  EXPECT_EQ(bridge->stats().replay.incomplete, 0u);
}

TEST(ZmqBridgeTest, ANumberOfAnEarlierRunReplaysAllOfThisOne) {
  ZmqBridge::Options options = Options();
  options.first_number = 1000;
  options.buffer_steps = 4;
  const auto bridge = Open(options);
  for (uint64_t number = 0; number < 4; ++number) bridge->Publish(Batch(number));
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  const auto answers = client.Replay(7);
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_THAT(answers[0], ElementsAre("", Seq(1000), Payload(0)));
  EXPECT_EQ(bridge->stats().replay.incomplete, 0u);
  bridge->Publish(Batch(4));
  EXPECT_EQ(client.Replay(7).size(), 5u);
  EXPECT_EQ(bridge->stats().replay.incomplete, 1u) << "the first batch of this run is missing";
}

TEST(ZmqBridgeTest, AReplayMayCarryTheTopic) {
  ZmqBridge::Options options = Options();
  options.reply = ReplayServer::Reply::kWithTopic;
  const auto bridge = Open(options);
  bridge->Publish(Batch(0));
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  EXPECT_THAT(client.Replay(0), ElementsAre(ElementsAre("", "kv@pod@m", Seq(0), Payload(0)),
                                            ElementsAre("", "", kEnd, "")));
}

TEST(ZmqBridgeTest, TheRingIsBoundedInBatchesAndInBytes) {
  for (const bool by_bytes : {false, true}) {
    ZmqBridge::Options options = Options();
    if (by_bytes) {
      options.buffer_bytes = 4 * Payload(99).size();
    } else {
      options.buffer_steps = 4;
    }
    const auto bridge = Open(options);
    for (uint64_t number = 0; number < 100; ++number) bridge->Publish(Batch(number));
    Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
    const auto answers = client.Replay(0);
    ASSERT_EQ(answers.size(), 5u);
    EXPECT_THAT(answers[0], ElementsAre("", Seq(96), Payload(96)));
    EXPECT_EQ(bridge->stats().replay.incomplete, 1u);
  }
}

TEST(ZmqBridgeTest, AStrangeRequestIsNotAnswered) {
  const auto bridge = Open(Options());
  bridge->Publish(Batch(0));
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  client.Send({"", "short"});
  client.Send({Seq(0)});
  client.Send({"x", Seq(0)});
  client.Send({"", Seq(0), "more"});
  client.Send({"", Seq(0), "a", "b", "c", "d"});
  EXPECT_EQ(client.Replay(0).size(), 2u) << "the first answer is that to the first good request";
  EXPECT_EQ(bridge->stats().replay.requests, 6u);
  EXPECT_EQ(bridge->stats().replay.refused, 5u);
}

// A client requests and does not read. Its answers, more than the sockets hold, wait. Other
// clients' answers and the events do not.
TEST(ZmqBridgeTest, AReplayThatNobodyReadsHoldsNothingUp) {
  const auto bridge = Open(Options());
  constexpr uint64_t kBatches = 3000;
  constexpr size_t kBlocks = 5000;  // About 15 KB.
  for (uint64_t number = 0; number < kBatches; ++number) bridge->Publish(Batch(number, kBlocks));
  Peer stalled(zmq::socket_type::dealer, bridge->replay_endpoint());
  stalled.Send({"", Seq(0)});
  Peer other(zmq::socket_type::dealer, bridge->replay_endpoint());
  EXPECT_EQ(other.Replay(0).size(), kBatches + 1);
  bridge->Publish(Batch(kBatches));
  for (uint64_t number = 0; number < kBatches; ++number) {
    const std::vector<std::string> answer = stalled.Receive();
    ASSERT_EQ(answer.size(), 3u);
    ASSERT_EQ(answer[1], Seq(number));
    ASSERT_EQ(answer[2].size(), Payload(number, kBlocks).size());
  }
  EXPECT_THAT(stalled.Receive(), ElementsAre("", Seq(kBatches), Payload(kBatches)))
      << "the replay was under way when it was published";
  EXPECT_THAT(stalled.Receive(), ElementsAre("", kEnd, ""));
}

// The queue of one subscriber is limited by the number of messages and by their bytes.
TEST(ZmqBridgeTest, AStalledSubscriberIsBoundedInMessagesAndInBytes) {
  ZmqBridge::Options options = Options();
  EXPECT_EQ(Open(options)->queue_messages(), 47) << "of 32 KiB and the topic, 1.5 MiB";
  options.hwm = 3;
  EXPECT_EQ(Open(options)->queue_messages(), 3);
  options.hwm = 1'000'000;
  options.subscriber_bytes = uint64_t{1} << 40;
  EXPECT_EQ(Open(options)->queue_messages(), 1'000'000);
  options.subscriber_bytes = 1 << 16;
  options.shape.tokens_per_block = 1024;
  EXPECT_EQ(Open(options)->queue_messages(), 1) << "a block is more than that";
}

TEST(ZmqBridgeTest, ALargeBatchIsSeveralMessages) {
  const auto bridge = Open(Options());
  auto batch = std::make_shared<RouterBatch>();
  BlocksRemoved removed;
  for (uint64_t i = 0; i < 20'000; ++i) removed.hashes.emplace_back(~i);
  batch->events = {{.what = removed}};
  bridge->Publish(batch);
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  const auto answers = client.Replay(0);
  EXPECT_EQ(bridge->stats().batches, answers.size() - 1);
  EXPECT_GE(answers.size(), 20'000u * 9 / ZmqBridge::kFullPayloadBytes + 1);
  for (size_t i = 0; i + 1 < answers.size(); ++i) {
    EXPECT_EQ(answers[i][1], Seq(i));
    EXPECT_LE(answers[i][2].size(), ZmqBridge::kFullPayloadBytes);
  }
}

// One client sends requests without end and reads nothing.
TEST(ReplayServerTest, AClientThatOnlyAsksIsRefusedAndHoldsNothingUp) {
  const auto bridge = Open(Options());
  constexpr uint64_t kBatches = 300;
  for (uint64_t number = 0; number < kBatches; ++number) bridge->Publish(Batch(number, 5000));
  Peer greedy(zmq::socket_type::dealer, bridge->replay_endpoint());
  for (int i = 0; i < 900; ++i) greedy.Send({"", Seq(0)});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (bridge->stats().replay.requests < 900 && absl::Now() < deadline)
    absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(bridge->stats().replay.requests, 900u) << "no request is left in the socket";
  EXPECT_GE(bridge->stats().replay.refused, 800u);
  Peer other(zmq::socket_type::dealer, bridge->replay_endpoint());
  EXPECT_EQ(other.Replay(0).size(), kBatches + 1);
}

TEST(ReplayServerTest, AClientsRequestsAreAnsweredOneAfterTheOther) {
  ZmqBridge::Options options = Options();
  options.subscriber_bytes = 1 << 30;  // Large enough that only the order of requests delays them.
  const auto bridge = Open(options);
  constexpr uint64_t kBatches = 5000;
  for (uint64_t number = 0; number < kBatches; ++number) bridge->Publish(Batch(number));
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  const std::vector<uint64_t> firsts = {0, 1500, 10};
  for (const uint64_t first : firsts) client.Send({"", Seq(first)});
  for (const uint64_t first : firsts) {
    for (uint64_t number = first; number < kBatches; ++number) {
      ASSERT_THAT(client.Receive(), ElementsAre("", Seq(number), Payload(number)));
    }
    ASSERT_THAT(client.Receive(), ElementsAre("", kEnd, ""));
  }
}

// More clients that do not read than the limit of replays: the next client is served nevertheless.
TEST(ReplayServerTest, OfTooManyClientsTheOneThatStandsStillForLongestGoes) {
  ZmqBridge::Options options = Options();
  options.hwm = 1;
  const auto bridge = Open(options);
  constexpr uint64_t kBatches = 400;
  for (uint64_t number = 0; number < kBatches; ++number) bridge->Publish(Batch(number, 9000));
  std::vector<std::unique_ptr<Peer>> stalled;
  for (size_t i = 0; i < ReplayServer::kMaxReplays; ++i) {
    stalled.push_back(
        std::make_unique<Peer>(zmq::socket_type::dealer, bridge->replay_endpoint(), 1));
    stalled.back()->Send({"", Seq(0)});
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (bridge->stats().replay.requests < stalled.size() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  Peer other(zmq::socket_type::dealer, bridge->replay_endpoint());
  EXPECT_EQ(other.Replay(kBatches - 3).size(), 4u);
  EXPECT_EQ(bridge->stats().replay.incomplete, 1u);
}

// An endless stream of refused requests: other clients are answered, and the server can end.
TEST(ReplayServerTest, AFloodOfRefusedRequestsHoldsNothingUp) {
  auto bridge = Open(Options());
  bridge->Publish(Batch(0));
  std::atomic<bool> over = false;
  std::vector<std::thread> floods;
  for (int i = 0; i < 2; ++i) {
    floods.emplace_back([&, endpoint = bridge->replay_endpoint()] {
      Peer flooding(zmq::socket_type::dealer, endpoint);
      while (!over) flooding.SendUnlessFull({"", "short"});
    });
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (bridge->stats().replay.refused < 10'000 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_GE(bridge->stats().replay.refused, 10'000u);
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  EXPECT_EQ(client.Replay(0).size(), 2u);
  bridge.reset();
  over = true;
  for (std::thread& flood : floods) flood.join();
}

// A frame of more than a few bytes ends its connection before it uses memory.
TEST(ReplayServerTest, AHugeFrameIsNotReceived) {
  const auto bridge = Open(Options());
  bridge->Publish(Batch(0));
  Peer client(zmq::socket_type::dealer, bridge->replay_endpoint());
  client.Send({"", std::string(64 << 20, 'x')});
  Peer other(zmq::socket_type::dealer, bridge->replay_endpoint());
  EXPECT_EQ(other.Replay(0).size(), 2u);
  EXPECT_EQ(bridge->stats().replay.requests, 1u) << "the huge one has not come";
}

TEST(ZmqBridgeTest, AnIpcSocketIsItsGroupsOwn) {
  ZmqBridge::Options options = Options();
  const std::string path = absl::StrCat(::testing::TempDir(), "/zmq-", getpid());
  options.endpoint = absl::StrCat("ipc://", path);
  const auto bridge = Open(options);
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
}

TEST(ZmqBridgeTest, AnEndpointThatIsTakenIsAnError) {
  const auto bridge = Open(Options());
  ZmqBridge::Options options = Options();
  // A path that cannot be bound.
  options.endpoint = "ipc:///nowhere/at/all";
  EXPECT_TRUE(absl::IsInvalidArgument(ZmqBridge::Open(options).status()));
}

}  // namespace
}  // namespace pagoda::server
