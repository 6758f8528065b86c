#include "clients/pagodactl/stream_position.h"

#include "gtest/gtest.h"

namespace pagoda {
namespace {

v1::WatchResponse Message(uint64_t previous, uint64_t revision, uint64_t epoch = 9) {
  v1::WatchResponse message;
  message.set_epoch(epoch);
  message.set_previous_revision(previous);
  message.set_revision(revision);
  return message;
}

TEST(StreamPositionTest, FollowsAStreamWithoutGaps) {
  StreamPosition position(/*from_revision=*/0);
  EXPECT_TRUE(position.Advance(Message(10, 10)).ok());
  EXPECT_TRUE(position.Advance(Message(10, 12)).ok());
  EXPECT_TRUE(position.Advance(Message(12, 12)).ok());
  EXPECT_EQ(position.revision(), 12u);
}

TEST(StreamPositionTest, SeesAGapAndARepetition) {
  StreamPosition position(0);
  ASSERT_TRUE(position.Advance(Message(10, 12)).ok());
  EXPECT_EQ(position.Advance(Message(13, 14)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(position.Advance(Message(11, 14)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(position.revision(), 12u);
}

TEST(StreamPositionTest, TheFirstMessageMustStartWhereItWasAskedTo) {
  EXPECT_TRUE(StreamPosition(5).Advance(Message(4, 4)).ok());
  EXPECT_EQ(StreamPosition(5).Advance(Message(5, 5)).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(StreamPosition(1).Advance(Message(0, 3)).ok());
}

TEST(StreamPositionTest, AnotherEpochIsAnotherStream) {
  StreamPosition position(0);
  ASSERT_TRUE(position.Advance(Message(10, 12, 9)).ok());
  EXPECT_EQ(position.Advance(Message(12, 13, 8)).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace pagoda
