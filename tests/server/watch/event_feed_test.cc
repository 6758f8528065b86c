#include "server/watch/event_feed.h"

#include <gtest/gtest.h>

#include "tests/server/held_copies.h"

namespace pagoda::server {
namespace {

class EventFeedTest : public testing::Test {
 protected:
  // Makes two more events: allocates and frees a raw block.
  void MakeEvents() {
    const auto taken = copies_.Run<AllocatedBlocks>(session_, AllocateBlocks{kFullAttention, 1});
    copies_.Run<FreedBlocks>(session_, FreeBlocks{kFullAttention, {taken.blocks[0].ref()}});
  }
  // The feed's message for a subscriber that has received everything below `from`.
  std::shared_ptr<const EventFeed::Message> Read(EventFeed& feed, Revision from) {
    const absl::StatusOr<EventFeed::Next> next = feed.Read(from, from);
    EXPECT_TRUE(next.ok()) << next.status();
    return next.ok() ? next->message : nullptr;
  }
  Revision NextRevision() const { return Revision(copies_.log().last().value() + 1); }

  HeldCopies copies_;
  EventFeeds feeds_{&copies_.manager()};
  const SessionRef session_ = copies_.Open();
};

TEST_F(EventFeedTest, WhatTwoReadIsEncodedOnce) {
  const std::shared_ptr<EventFeed> mine = feeds_.Get({});
  const std::shared_ptr<EventFeed> yours = feeds_.Get({});
  ASSERT_EQ(mine, yours);
  const Revision from = NextRevision();
  MakeEvents();
  const auto message = Read(*mine, from);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->num_events, 2u);
  EXPECT_EQ(Read(*yours, from), message);
}

TEST_F(EventFeedTest, ReadersOfEqualChunksShareAFeed) {
  const std::shared_ptr<EventFeed> mine = feeds_.Get({.chunk_tokens = 8});
  EXPECT_EQ(feeds_.Get({.chunk_tokens = 8}), mine);
  EXPECT_NE(feeds_.Get({.chunk_tokens = 16}), mine);
  EXPECT_NE(feeds_.Get({}), mine);
}

TEST_F(EventFeedTest, NothingIsKeptForNobody) {
  const std::shared_ptr<EventFeed> feed = feeds_.Get({});
  for (int i = 0; i < 10; ++i) {
    const Revision from = NextRevision();
    MakeEvents();
    ASSERT_NE(Read(*feed, from), nullptr);
  }
  EXPECT_EQ(feed->num_kept(), 0u);
}

TEST_F(EventFeedTest, ABoundedNumberOfTheNewestIsKept) {
  const std::shared_ptr<EventFeed> feed = feeds_.Get({});
  const std::shared_ptr<EventFeed> another = feeds_.Get({});
  const Revision oldest = NextRevision();
  Revision newest = oldest;
  for (size_t i = 0; i < EventFeed::kKeptMessages + 10; ++i) {
    newest = NextRevision();
    MakeEvents();
    ASSERT_NE(Read(*feed, newest), nullptr);
  }
  EXPECT_EQ(feed->num_kept(), EventFeed::kKeptMessages);
  const auto kept = Read(*feed, newest);
  // A subscriber that is behind gets its messages, and they displace no kept message.
  const auto old = Read(*feed, oldest);
  ASSERT_NE(old, nullptr);
  EXPECT_EQ(old->begin, oldest);
  EXPECT_NE(Read(*feed, oldest), old);
  EXPECT_EQ(Read(*feed, newest), kept);
}

}  // namespace
}  // namespace pagoda::server
