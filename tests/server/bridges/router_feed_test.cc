#include "server/bridges/router_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "events/event_log.h"

namespace pagoda::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// Keeps the published batches.
class Sink final : public RouterSink {
 public:
  void Publish(const RouterBatchPtr& batch) override {
    absl::MutexLock lock(&mutex_);
    batches_.push_back(batch);
    events_ += batch->events.size();
  }
  std::vector<RouterBatchPtr> WaitForEvents(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]()
                            ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return events_ >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience)) << events_;
    return batches_;
  }
  std::vector<RouterBatchPtr> batches() { return WaitForEvents(0); }

 private:
  absl::Mutex mutex_;
  std::vector<RouterBatchPtr> batches_ ABSL_GUARDED_BY(mutex_);
  size_t events_ ABSL_GUARDED_BY(mutex_) = 0;
};

RouterFeed::Options Options() {
  return {.cache = {.tokens_per_block = 1, .windows = {kFullAttention}},
          .flush_interval = absl::Milliseconds(1),
          .first_number = 100,
          .read_snapshot = [](const SnapshotPosition&) -> SnapshotPiece {
            ADD_FAILURE() << "the log has everything";
            return {.end = {.done = true}};
          }};
}

// One block of one token, at the root.
Event StoredBlockEvent(uint64_t revision) {
  const auto id = static_cast<uint32_t>(revision);
  return {.revision = Revision(revision),
          .time = absl::UnixEpoch() + absl::Seconds(revision),
          .what = StoredEvent{
              .blocks = {{.id = BlockId(id), .hash = BlockHash(revision), .token_count = 1}},
              .tokens = {id}}};
}

void Append(EventLog& log, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) log.Append({StoredBlockEvent(log.last().value() + 1)});
}

std::vector<uint64_t> HashesOf(const std::vector<RouterBatchPtr>& batches) {
  std::vector<uint64_t> hashes;
  for (const RouterBatchPtr& batch : batches) {
    for (const RouterEvent& event : batch->events) {
      const auto* stored = std::get_if<BlocksStored>(&event.what);
      hashes.push_back(stored == nullptr ? 0 : stored->hashes.at(0).value());
    }
  }
  return hashes;
}

TEST(RouterFeedTest, BatchesAreNumberedAndTellEverythingFromTheFirstEventOn) {
  EventLog log({});
  Append(log, 5);
  Sink sink;
  RouterFeed feed(Options(), &log, {&sink});
  sink.WaitForEvents(5);
  Append(log, 5);
  const auto batches = sink.WaitForEvents(10);
  EXPECT_THAT(HashesOf(batches), ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  uint64_t events = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(batches[i]->number, 100 + i);
    EXPECT_EQ(batches[i]->first_event, events + 1);
    events += batches[i]->events.size();
    EXPECT_EQ(batches[i]->time, absl::UnixEpoch() + absl::Seconds(events));
    EXPECT_EQ(batches[i]->revision.value(), events) << "an event for each revision";
  }
  EXPECT_EQ(feed.stats().stored_blocks, 10u);
  EXPECT_EQ(feed.stats().resets, 0u);
}

TEST(RouterFeedTest, TheEndComesAfterTheLastEvent) {
  EventLog log({});
  Sink sink;
  auto feed = std::make_unique<RouterFeed>(Options(), &log, std::vector<RouterSink*>{&sink});
  Append(log, 2000);
  feed.reset();
  EXPECT_EQ(HashesOf(sink.batches()).size(), 2000u);
}

TEST(RouterFeedTest, WhoWaitsForARevisionFindsItPublished) {
  EventLog log({});
  Sink sink;
  RouterFeed feed(Options(), &log, {&sink});
  for (uint64_t last = 10; last <= 100; last += 10) {
    Append(log, 10);
    ASSERT_TRUE(feed.WaitUntilRead(Revision(last), kPatience));
    EXPECT_GE(HashesOf(sink.batches()).size(), last);
  }
  EXPECT_FALSE(feed.WaitUntilRead(Revision(101), absl::Milliseconds(10)));
}

TEST(RouterFeedTest, ABatchIsBounded) {
  EventLog log({});
  Append(log, 20'000);
  Sink sink;
  RouterFeed feed(Options(), &log, {&sink});
  const auto batches = sink.WaitForEvents(20'000);
  EXPECT_GT(batches.size(), 5u);
  uint64_t events = 0;
  for (const RouterBatchPtr& batch : batches) {
    EXPECT_LE(batch->bytes, RouterFeed::kFullBatchBytes + 1024);
    events += batch->events.size();
    EXPECT_LE(batch->revision.value(), events) << "no more than it has told";
    EXPECT_GE(batch->revision.value() + 1, events);
  }
}

// The log has dropped events before the feed's first read. The snapshot has two pieces. Between
// them a block of the first piece is removed and a block of the second is stored. One more is
// stored directly after the second piece.
TEST(RouterFeedTest, AFeedThatTheLogHasPassedBeginsAgainWithASnapshot) {
  EventLog log({.max_events = 4});
  Append(log, 10);
  Sink sink;
  RouterFeed::Options options = Options();
  options.read_snapshot = [&log](const SnapshotPosition& from) -> SnapshotPiece {
    if (from == SnapshotPosition()) {
      // A child before its parent.
      StoredEvent child = std::get<StoredEvent>(StoredBlockEvent(3).what);
      child.parent_hash = BlockHash(5);
      child.parent = BlockId(5);
      return {.events = {Event{.what = child}, StoredBlockEvent(5), StoredBlockEvent(6)},
              .revision = Revision(10),
              .end = {.window = kFullAttention, .next = BlockId(7)}};
    }
    log.Append({Event{.revision = Revision(11),
                      .what = RemovedEvent{.blocks = {BlockId(6)}, .hashes = {BlockHash(6)}}},
                StoredBlockEvent(12), StoredBlockEvent(13)});
    return {.events = {StoredBlockEvent(9), StoredBlockEvent(12)},
            .revision = Revision(12),
            .end = {.done = true}};
  };
  RouterFeed feed(options, &log, {&sink});
  sink.WaitForEvents(4);
  log.Append({StoredBlockEvent(14)});
  const auto batches = sink.WaitForEvents(6);
  EXPECT_THAT(HashesOf(batches), ::testing::ElementsAre(0, 5, 9, 12, 13, 14));
  const auto& run = std::get<BlocksStored>(batches.at(0)->events.at(1).what);
  EXPECT_THAT(run.hashes, ::testing::ElementsAre(BlockHash(5), BlockHash(3)));
  EXPECT_EQ(feed.stats().resets, 1u);
}

// During each piece of a snapshot the log grows by more than it holds.
TEST(RouterFeedTest, WithoutASnapshotItGoesOnWithWhatTheLogHas) {
  EventLog log({.max_events = 4});
  Append(log, 10);
  Sink sink;
  RouterFeed::Options options = Options();
  options.read_snapshot = [&log](const SnapshotPosition&) -> SnapshotPiece {
    SnapshotPiece piece = {.revision = log.last(), .end = {.window = kFullAttention}};
    piece.end.next = BlockId(1);
    Append(log, 10);
    return piece;
  };
  RouterFeed feed(options, &log, {&sink});
  const auto batches = sink.WaitForEvents(5);
  const uint64_t last = log.last().value();
  EXPECT_THAT(HashesOf(batches), ::testing::ElementsAre(0, last - 3, last - 2, last - 1, last));
  // The removal of a block that the router was never told of is not published.
  log.Append({Event{.revision = Revision(last + 1),
                    .what = RemovedEvent{.blocks = {BlockId(2)}, .hashes = {BlockHash(2)}}},
              StoredBlockEvent(last + 2)});
  EXPECT_EQ(HashesOf(sink.WaitForEvents(6)).back(), last + 2);
  EXPECT_EQ(feed.stats().resets, 1u);
}

}  // namespace
}  // namespace pagoda::server
