#include "server/listener/header_limit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace pagoda::server {
namespace {

constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kSettings = 4;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kNoFlags = 0;
constexpr uint8_t kEndHeaders = 4;

const std::string kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(uint8_t type, uint8_t flags, size_t bytes) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(bytes >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  frame += std::string("\0\0\0\1", 4);
  // The payload looks like frames if the parser loses its position.
  return frame + std::string(bytes, '\1');
}

bool Accepts(HeaderLimit& limit, const std::string& bytes) {
  return limit.Accept({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

bool Accepts(const std::string& frames) {
  HeaderLimit limit;
  return Accepts(limit, kPreface + Frame(kSettings, kNoFlags, 0) + frames);
}

TEST(HeaderLimitTest, CallsWithMessagesOfAnySizePass) {
  HeaderLimit limit;
  ASSERT_TRUE(Accepts(limit, kPreface + Frame(kSettings, kNoFlags, 18)));
  for (int call = 0; call < 100; ++call) {
    ASSERT_TRUE(Accepts(limit, Frame(kHeaders, kEndHeaders, 200)));
    ASSERT_TRUE(Accepts(limit, Frame(kData, kNoFlags, 100'000)));
  }
}

TEST(HeaderLimitTest, ABlockMayFillOneFrame) {
  EXPECT_TRUE(Accepts(Frame(kHeaders, kEndHeaders, HeaderLimit::kMaxBlockBytes)));
  EXPECT_FALSE(Accepts(Frame(kHeaders, kEndHeaders, HeaderLimit::kMaxBlockBytes + 1)));
}

TEST(HeaderLimitTest, FramesOfOneBlockAreAddedUp) {
  const size_t half = HeaderLimit::kMaxBlockBytes / 2;
  const std::string begun = Frame(kHeaders, kNoFlags, half);
  EXPECT_TRUE(Accepts(begun + Frame(kContinuation, kEndHeaders, half)));
  EXPECT_FALSE(Accepts(begun + Frame(kContinuation, kEndHeaders, half + 1)));
  // The count starts at zero for the next block.
  const std::string whole = begun + Frame(kContinuation, kEndHeaders, half);
  EXPECT_TRUE(Accepts(whole + whole + whole));
}

TEST(HeaderLimitTest, ABlockOfTinyFramesIsBounded) {
  std::string frames = Frame(kHeaders, kNoFlags, 1);
  for (int i = 1; i < HeaderLimit::kMaxBlockFrames; ++i) {
    frames += Frame(kContinuation, kNoFlags, 1);
  }
  EXPECT_TRUE(Accepts(frames));
  EXPECT_FALSE(Accepts(frames + Frame(kContinuation, kEndHeaders, 0)));
}

TEST(HeaderLimitTest, NothingStandsInsideABlock) {
  EXPECT_FALSE(Accepts(Frame(kHeaders, kNoFlags, 1) + Frame(kData, kNoFlags, 1)));
  EXPECT_FALSE(Accepts(Frame(kHeaders, kNoFlags, 1) + Frame(kHeaders, kEndHeaders, 1)));
  EXPECT_FALSE(Accepts(Frame(kContinuation, kEndHeaders, 1)));
}

// Refused at the frame's header, so its payload of up to 16 MiB never reaches the parser.
TEST(HeaderLimitTest, ATooLargeFrameIsRefusedByItsHeaderAlone) {
  const std::string large = Frame(kHeaders, kEndHeaders, HeaderLimit::kMaxBlockBytes + 1);
  EXPECT_FALSE(Accepts(large.substr(0, 9)));
  EXPECT_TRUE(Accepts(large.substr(0, 8)));
}

TEST(HeaderLimitTest, ItDoesNotMatterHowBytesAreCutIntoReads) {
  const std::string good = kPreface + Frame(kSettings, kNoFlags, 6) +
                           Frame(kHeaders, kNoFlags, 100) + Frame(kContinuation, kEndHeaders, 50) +
                           Frame(kData, kNoFlags, 70);
  const std::string bad = good + Frame(kContinuation, kNoFlags, 3);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{64}}) {
    HeaderLimit limit;
    for (size_t at = 0; at < good.size(); at += piece) {
      ASSERT_TRUE(Accepts(limit, good.substr(at, piece))) << at << " by " << piece;
    }
    HeaderLimit other;
    bool accepted = true;
    for (size_t at = 0; at < bad.size(); at += piece)
      accepted = Accepts(other, bad.substr(at, piece));
    EXPECT_FALSE(accepted) << piece;
  }
}

TEST(HeaderLimitTest, WhatIsRefusedStaysRefused) {
  HeaderLimit limit;
  EXPECT_FALSE(Accepts(limit, kPreface + Frame(kContinuation, kEndHeaders, 1)));
  EXPECT_FALSE(Accepts(limit, Frame(kData, kNoFlags, 1)));
  EXPECT_FALSE(Accepts(limit, ""));
}

TEST(HeaderLimitTest, OtherProtocolsPass) {
  // TLS, whose plaintext has its own limit, and protocols that gRPC itself refuses.
  for (const std::string& other :
       {std::string("\x16\x03\x01\x02"), std::string("GET / HTTP/1.1\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nXX")}) {
    HeaderLimit limit;
    EXPECT_TRUE(Accepts(limit, other));
    EXPECT_TRUE(Accepts(limit, Frame(kHeaders, kNoFlags, 1 << 20)));
  }
}

}  // namespace
}  // namespace pagoda::server
