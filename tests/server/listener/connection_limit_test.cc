#include "server/listener/connection_limit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <list>
#include <string>

namespace pagoda::server {
namespace {

constexpr int kMaxEarly = ConnectionLimit::kMaxEarlyStreams;
constexpr uint8_t kNone = 0;
constexpr uint8_t kEndOfHeaders = Http2Frame::kEndHeaders;
constexpr uint8_t kEndOfCall = Http2Frame::kEndHeaders | Http2Frame::kEndStream;

std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream) {
  std::string frame(3, '\0');
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame;
}

absl::Span<const uint8_t> AsSpan(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

ConnectionLimit::Time now;

// A client and the server's answers to it.
class Peer {
 public:
  using Sees = ConnectionLimit::Sees;
  enum class Acknowledges : uint8_t { kNo, kYes };

  explicit Peer(Sees sees = Sees::kBlocked, Acknowledges acknowledges = Acknowledges::kYes)
      : limit_(sees, now, [this] { ended_ = true; }) {
    Receive("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + FrameOf(Http2Frame::kSettings, kNone, 0));
    if (acknowledges == Acknowledges::kYes) {
      Receive(FrameOf(Http2Frame::kSettings, Http2Frame::kAck, 0));
    }
  }
  // False: the connection must end.
  bool Begin(uint8_t flags = kEndOfHeaders) {
    return Receive(FrameOf(Http2Frame::kHeaders, flags, next_ += 2));
  }
  bool BeginStream(uint32_t stream) {
    return Receive(FrameOf(Http2Frame::kHeaders, kEndOfCall, stream));
  }
  void Complete(uint32_t back = 0) {
    Receive(FrameOf(Http2Frame::kData, Http2Frame::kEndStream, next_ - 2 * back));
  }
  bool Answer(uint8_t flags) { return Send(FrameOf(Http2Frame::kHeaders, flags, next_)); }
  void Block() { limit_.SetBlocked(true, now); }
  void Read() { limit_.SetBlocked(false, now); }
  // Bytes that begin no stream pass.
  bool Passes() { return Receive(Nothing()) && Send(Nothing()); }
  // Another connection has ended this one.
  bool ended() const { return ended_; }
  // How many streams of this kind the client can begin, at most `most`.
  int CountBegun(int most, uint8_t flags = kEndOfHeaders) {
    int begun = 0;
    while (begun < most && Begin(flags)) ++begun;
    return begun;
  }

 private:
  static std::string Nothing() { return FrameOf(Http2Frame::kData, kNone, 0); }
  bool Receive(const std::string& bytes) { return limit_.Receive(AsSpan(bytes), now); }
  bool Send(const std::string& bytes) { return limit_.Send(AsSpan(bytes), now); }

  bool ended_ = false;
  ConnectionLimit limit_;
  uint32_t next_ = 0xffffffff;
};

class ConnectionLimitTest : public testing::Test {
 protected:
  ConnectionLimitTest() {
    ConnectionLimit::SetLimits({.open = 500, .all_waiting = 200, .all_open = 1000});
  }
  ~ConnectionLimitTest() override { ConnectionLimit::SetLimits({}); }
};

TEST_F(ConnectionLimitTest, BeforeTheAcknowledgementOnlyFewStreamsAreOpen) {
  EXPECT_EQ(Peer(Peer::Sees::kBlocked, Peer::Acknowledges::kNo).CountBegun(1000, kEndOfCall),
            kMaxEarly);
  EXPECT_EQ(Peer().CountBegun(1000, kEndOfCall), 500);
}

TEST_F(ConnectionLimitTest, SettingsAreAcknowledgedInTime) {
  Peer late(Peer::Sees::kBlocked, Peer::Acknowledges::kNo);
  Peer prompt;
  Peer idle(Peer::Sees::kBlocked, Peer::Acknowledges::kNo);
  EXPECT_TRUE(late.Begin(kEndOfCall) && prompt.Begin(kEndOfCall));
  now += ConnectionLimit::kAcknowledgeTime;
  EXPECT_TRUE(late.Passes());
  now += std::chrono::seconds(1);
  EXPECT_FALSE(late.Passes());
  EXPECT_TRUE(prompt.Passes());
  EXPECT_TRUE(idle.Passes()) << "it has begun no call";
}

TEST_F(ConnectionLimitTest, AnAnsweredStreamIsNotOpen) {
  Peer peer(Peer::Sees::kBlocked, Peer::Acknowledges::kNo);
  for (int call = 0; call < 1000; ++call) {
    ASSERT_TRUE(peer.Begin());
    peer.Complete();
    peer.Answer(kEndOfHeaders);
    peer.Answer(kEndOfCall);
  }
}

TEST_F(ConnectionLimitTest, TheConnectionWithMostWaitingStreamsEnds) {
  Peer small;
  EXPECT_EQ(small.CountBegun(60), 60);
  Peer large;
  EXPECT_EQ(large.CountBegun(140), 140);
  Peer other;
  EXPECT_TRUE(other.Begin());
  EXPECT_TRUE(large.ended());
  EXPECT_FALSE(large.Passes());
  EXPECT_TRUE(small.Passes() && other.Passes());
  EXPECT_FALSE(small.ended());
  EXPECT_EQ(other.CountBegun(300), 139) << "until it has most itself";
  EXPECT_FALSE(small.ended());
}

TEST_F(ConnectionLimitTest, OfSeveralTheOldestEnds) {
  std::list<Peer> peers;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(peers.emplace_back().Begin());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(peers.emplace_back().Begin());
  int ended = 0;
  for (const Peer& peer : peers) {
    EXPECT_EQ(peer.ended(), ended < 3) << ended;
    ++ended;
  }
  peers.clear();
  EXPECT_EQ(Peer().CountBegun(1000), 200) << "the places of connections that are gone are free";
}

TEST_F(ConnectionLimitTest, EndedConnectionsThatAreNotGoneKeepNoSmallOneOut) {
  std::list<Peer> peers;
  int begun = 0;
  for (int i = 0; i < 100; ++i) begun += peers.emplace_back().CountBegun(50);
  EXPECT_LT(begun, 400 + 100 * 17) << "twice the limit, and few of each connection beyond";
  EXPECT_EQ(peers.emplace_back().CountBegun(1000), 16);
}

TEST_F(ConnectionLimitTest, CompleteRequestsOfAClientThatReadsDoNotWait) {
  Peer one;
  one.Block();
  EXPECT_EQ(one.CountBegun(1000, kEndOfCall), 200);
  EXPECT_EQ(Peer().CountBegun(400, kEndOfCall), 400);
}

TEST_F(ConnectionLimitTest, WithoutSightOfTheSocketCompleteRequestsWait) {
  Peer one(Peer::Sees::kNothing);
  EXPECT_EQ(one.CountBegun(1000, kEndOfCall), 200);
  Peer answered(Peer::Sees::kNothing);
  for (int call = 0; call < 500; ++call) {
    ASSERT_TRUE(answered.Begin(kEndOfCall)) << call;
    answered.Answer(kEndOfHeaders);
  }
}

TEST_F(ConnectionLimitTest, OpenStreamsOfAllConnectionsAreBounded) {
  Peer most;
  Peer few;
  Peer many;
  const auto answered = [](Peer& peer, int streams) {
    for (int call = 0; call < streams; ++call) {
      ASSERT_TRUE(peer.Begin(kEndOfCall)) << call;
      peer.Answer(kEndOfHeaders);
    }
  };
  answered(most, 490);
  answered(few, 50);
  answered(many, 460);
  EXPECT_FALSE(most.ended());
  answered(few, 1);
  EXPECT_TRUE(most.ended());
  EXPECT_FALSE(many.ended());
}

TEST_F(ConnectionLimitTest, AnEvenStreamHidesNoOther) {
  Peer peer;
  EXPECT_FALSE(peer.BeginStream(0x7ffffffe));
}

TEST_F(ConnectionLimitTest, AClientCompletesSomethingInTime) {
  Peer peer;
  EXPECT_TRUE(peer.Begin() && peer.Begin());
  now += ConnectionLimit::kCompleteTime;
  EXPECT_TRUE(peer.Passes());
  peer.Complete(1);
  now += ConnectionLimit::kCompleteTime;
  EXPECT_TRUE(peer.Passes()) << "it has completed one";
  now += std::chrono::seconds(1);
  EXPECT_FALSE(peer.Passes());
  peer.Complete();
  EXPECT_FALSE(peer.Passes()) << "an ended connection stays ended";
  Peer other;
  EXPECT_TRUE(other.Begin());
  other.Complete();
  now += std::chrono::hours(1);
  EXPECT_TRUE(other.Begin()) << "the time begins with the first incomplete request";
}

TEST_F(ConnectionLimitTest, AClientReadsInTime) {
  Peer peer;
  peer.Block();
  now += ConnectionLimit::kReadTime;
  EXPECT_TRUE(peer.Passes());
  peer.Read();
  peer.Block();
  now += ConnectionLimit::kReadTime;
  EXPECT_TRUE(peer.Passes()) << "it has read since";
  now += std::chrono::seconds(1);
  EXPECT_FALSE(peer.Passes());
}

}  // namespace
}  // namespace pagoda::server
