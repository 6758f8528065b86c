#include "server/rpc/connection_limit.h"

#include <gtest/gtest.h>

#include <list>
#include <string>

namespace pagoda::server {
namespace {

constexpr int kMinWaiting = ConnectionLimit::kMinWaiting;
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

// A client and the server's answers to it.
class Peer {
 public:
  explicit Peer(bool acknowledges = true) {
    Receive("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + FrameOf(Http2Frame::kSettings, kNone, 0));
    if (acknowledges) Receive(FrameOf(Http2Frame::kSettings, Http2Frame::kAck, 0));
  }
  // False: the connection must end.
  bool Begin(uint8_t flags = kEndOfHeaders) {
    return Receive(FrameOf(Http2Frame::kHeaders, flags, next_ += 2));
  }
  void Complete() { Receive(FrameOf(Http2Frame::kData, Http2Frame::kEndStream, next_)); }
  void Answer(uint8_t flags) { limit_.Send(AsSpan(FrameOf(Http2Frame::kHeaders, flags, next_))); }
  void Block() { limit_.SetBlocked(true); }
  // How many streams of this kind the client can begin, at most `most`.
  int CountBegun(int most, uint8_t flags = kEndOfHeaders) {
    int begun = 0;
    while (begun < most && Begin(flags)) ++begun;
    return begun;
  }

 private:
  bool Receive(const std::string& bytes) { return limit_.Receive(AsSpan(bytes)); }

  ConnectionLimit limit_{ConnectionLimit::Sees::kBlocked};
  uint32_t next_ = 0xffffffff;
};

class ConnectionLimitTest : public testing::Test {
 protected:
  ConnectionLimitTest() { SetStreamLimits({.open = 500, .waiting = 200}); }
  ~ConnectionLimitTest() override { SetStreamLimits({}); }
};

TEST_F(ConnectionLimitTest, BeforeTheAcknowledgementOnlyFewStreamsAreOpen) {
  EXPECT_EQ(Peer(false).CountBegun(1000, kEndOfCall), kMaxEarly);
  EXPECT_EQ(Peer(true).CountBegun(1000, kEndOfCall), 500);
}

TEST_F(ConnectionLimitTest, AnAnsweredStreamIsNotOpen) {
  Peer peer(false);
  for (int call = 0; call < 1000; ++call) {
    ASSERT_TRUE(peer.Begin());
    peer.Complete();
    peer.Answer(kEndOfHeaders);
    peer.Answer(kEndOfCall);
  }
}

TEST_F(ConnectionLimitTest, IncompleteRequestsOfAllConnectionsAreBounded) {
  std::list<Peer> peers;
  int begun = 0;
  for (int i = 0; i < 5; ++i) begun += peers.emplace_back().CountBegun(100);
  EXPECT_EQ(begun, 200 + 3 * kMinWaiting) << "the first two take all";
  EXPECT_EQ(Peer().CountBegun(100), kMinWaiting);
  Peer complete;
  EXPECT_EQ(complete.CountBegun(100, kEndOfCall), 100) << "these are limited elsewhere";
  peers.clear();
  EXPECT_EQ(Peer().CountBegun(100), 100) << "what ended connections had is free";
}

TEST_F(ConnectionLimitTest, CompleteRequestsOfAClientThatDoesNotReadWait) {
  Peer one;
  one.Block();
  EXPECT_EQ(one.CountBegun(1000, kEndOfCall), 200);
  EXPECT_EQ(Peer().CountBegun(100, kEndOfCall), 100) << "of a client that reads they do not";
}

}  // namespace
}  // namespace pagoda::server
