#include "clients/pagodactl/events/stream_position.h"

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
  StreamPosition position({});
  EXPECT_TRUE(position.Advance(Message(10, 10)).ok());
  EXPECT_TRUE(position.Advance(Message(10, 12)).ok());
  EXPECT_TRUE(position.Advance(Message(12, 12)).ok());
  EXPECT_EQ(position.revision(), 12u);
}

TEST(StreamPositionTest, SeesAGapAndARepetition) {
  StreamPosition position({});
  ASSERT_TRUE(position.Advance(Message(10, 12)).ok());
  EXPECT_EQ(position.Advance(Message(13, 14)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(position.Advance(Message(11, 14)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(position.revision(), 12u);
}

TEST(StreamPositionTest, TheFirstMessageMustStartWhereItWasAskedTo) {
  EXPECT_TRUE(StreamPosition({.from_revision = 5}).Advance(Message(4, 4)).ok());
  EXPECT_EQ(StreamPosition({.from_revision = 5}).Advance(Message(5, 5)).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(StreamPosition({.from_revision = 1}).Advance(Message(0, 3)).ok());
}

TEST(StreamPositionTest, AnotherEpochIsAnotherStream) {
  StreamPosition position({});
  ASSERT_TRUE(position.Advance(Message(10, 12, 9)).ok());
  EXPECT_EQ(position.Advance(Message(12, 13, 8)).code(), absl::StatusCode::kDataLoss);
}

v1::WatchResponse Begin(uint64_t revision) {
  v1::WatchResponse message = Message(revision, revision);
  message.set_snapshot_begin(true);
  return message;
}

v1::WatchResponse End(uint64_t previous, uint64_t revision) {
  v1::WatchResponse message = Message(previous, revision);
  message.set_snapshot_end(true);
  return message;
}

TEST(StreamPositionTest, ASnapshotMayBeginAnywhereAndGoesOnFromThere) {
  StreamPosition position({.snapshot = true});
  EXPECT_FALSE(position.started());
  ASSERT_TRUE(position.Advance(Begin(10)).ok());
  EXPECT_TRUE(position.started());
  EXPECT_TRUE(position.Advance(Message(10, 11)).ok());
  EXPECT_TRUE(position.Advance(Begin(70)).ok()) << "within one: the log passed it";
  EXPECT_TRUE(position.Advance(End(70, 72)).ok());
  EXPECT_TRUE(position.Advance(Message(72, 73)).ok());
  EXPECT_TRUE(position.Advance(Begin(90)).ok());
  EXPECT_EQ(position.Advance(Message(91, 92)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(position.revision(), 90u);
}

TEST(StreamPositionTest, WhatWasToBeASnapshotBeginsAndWhatEndsHasBegun) {
  EXPECT_EQ(StreamPosition({.snapshot = true}).Advance(Message(4, 4)).code(),
            absl::StatusCode::kDataLoss);
  StreamPosition position({});
  ASSERT_TRUE(position.Advance(Message(10, 10)).ok());
  EXPECT_EQ(position.Advance(End(10, 12)).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace pagoda
