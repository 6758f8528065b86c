#include "server/bridges/router_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
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
  sink.WaitForEvents(6);
  Append(log, 5);
  const auto batches = sink.WaitForEvents(11);
  EXPECT_THAT(HashesOf(batches), ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  uint64_t events = 0;
  for (size_t i = 0; i < batches.size(); ++i) {
    EXPECT_EQ(batches[i]->number, 100 + i);
    EXPECT_EQ(batches[i]->first_event, events + 1);
    events += batches[i]->events.size();
    EXPECT_EQ(batches[i]->revision.value(), events - 1) << "a clear, then one for each revision";
    if (i > 0) {
      EXPECT_EQ(batches[i]->time, absl::UnixEpoch() + absl::Seconds(events - 1));
    }
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
  EXPECT_EQ(HashesOf(sink.batches()).size(), 2001u);
}

TEST(RouterFeedTest, WhoWaitsForARevisionFindsItPublished) {
  EventLog log({});
  Sink sink;
  RouterFeed feed(Options(), &log, {&sink});
  for (uint64_t last = 10; last <= 100; last += 10) {
    Append(log, 10);
    ASSERT_TRUE(feed.WaitUntilRead(Revision(last), kPatience));
    EXPECT_GT(HashesOf(sink.batches()).size(), last);
  }
  EXPECT_FALSE(feed.WaitUntilRead(Revision(101), absl::Milliseconds(10)));
}

TEST(RouterFeedTest, ABatchIsBounded) {
  EventLog log({});
  Append(log, 20'000);
  Sink sink;
  RouterFeed feed(Options(), &log, {&sink});
  const auto batches = sink.WaitForEvents(20'001);
  EXPECT_GT(batches.size(), 5u);
  uint64_t events = 0;
  for (const RouterBatchPtr& batch : batches) {
    EXPECT_LE(batch->bytes, RouterFeed::kFullBatchBytes + 1024);
    events += batch->events.size();
    EXPECT_LE(batch->revision.value() + 1, events) << "no more than it has told";
    EXPECT_GE(batch->revision.value() + 2, events);
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
  sink.WaitForEvents(5);
  log.Append({StoredBlockEvent(14)});
  const auto batches = sink.WaitForEvents(7);
  EXPECT_THAT(HashesOf(batches), ::testing::ElementsAre(0, 0, 5, 9, 12, 13, 14));
  const auto& run = std::get<BlocksStored>(batches.at(1)->events.at(1).what);
  EXPECT_THAT(run.hashes, ::testing::ElementsAre(BlockHash(5), BlockHash(3)));
  EXPECT_EQ(feed.stats().resets, 1u);
}

// During each piece of the first snapshots the log grows by more than it holds.
TEST(RouterFeedTest, WithoutASnapshotItGoesOnWithWhatTheLogHasAndTriesAgain) {
  EventLog log({.max_events = 4});
  Append(log, 10);
  Sink sink;
  RouterFeed::Options options = Options();
  std::atomic<bool> quiet = false;
  options.read_snapshot = [&](const SnapshotPosition&) -> SnapshotPiece {
    if (quiet) {
      return {.events = {StoredBlockEvent(3)}, .revision = log.last(), .end = {.done = true}};
    }
    SnapshotPiece piece = {.revision = log.last(), .end = {.window = kFullAttention}};
    piece.end.next = BlockId(1);
    Append(log, 10);
    return piece;
  };
  RouterFeed feed(options, &log, {&sink});
  const auto batches = sink.WaitForEvents(6);
  quiet = true;
  const uint64_t last = log.last().value();
  EXPECT_THAT(HashesOf(batches), ::testing::ElementsAre(0, 0, last - 3, last - 2, last - 1, last));
  // The removal of a block that the router was never told of is not published.
  log.Append({Event{.revision = Revision(last + 1),
                    .what = RemovedEvent{.blocks = {BlockId(2)}, .hashes = {BlockHash(2)}}},
              StoredBlockEvent(last + 2)});
  EXPECT_EQ(HashesOf(sink.WaitForEvents(7))[6], last + 2);
  EXPECT_THAT(HashesOf(sink.WaitForEvents(9)),
              ::testing::ElementsAre(0, 0, last - 3, last - 2, last - 1, last, last + 2, 0, 3));
  EXPECT_EQ(feed.stats().resets, 2u);
}

// A sink with room for few batches. Reading them all in order always ends with what is cached.
TEST(RouterFeedTest, WhenASinkHasDroppedTheClearEverythingIsToldAgain) {
  class ShortSink final : public RouterSink {
   public:
    void Publish(const RouterBatchPtr& batch) override {
      absl::MutexLock lock(&mutex_);
      kept_.push_back(batch);
      if (kept_.size() > 4) kept_.pop_front();
    }
    bool KeepsLastClear() const override {
      absl::MutexLock lock(&mutex_);
      return absl::c_any_of(kept_,
                            [](const RouterBatchPtr& batch) { return BeginsWithClear(*batch); });
    }
    std::vector<RouterBatchPtr> kept() const {
      absl::MutexLock lock(&mutex_);
      return {kept_.begin(), kept_.end()};
    }

   private:
    mutable absl::Mutex mutex_;
    std::deque<RouterBatchPtr> kept_ ABSL_GUARDED_BY(mutex_);
  };
  EventLog log({});
  ShortSink sink;
  RouterFeed feed(Options(), &log, {&sink});
  int with_everything = 0;
  for (uint64_t last = 1; last <= 300; ++last) {
    Append(log, 1);
    ASSERT_TRUE(feed.WaitUntilRead(Revision(last), kPatience));
    size_t blocks = 0;
    for (const RouterBatchPtr& batch : sink.kept()) {
      if (BeginsWithClear(*batch)) blocks = 0;
      for (const RouterEvent& event : batch->events) {
        if (const auto* run = std::get_if<BlocksStored>(&event.what)) blocks += run->hashes.size();
      }
    }
    with_everything += blocks == last ? 1 : 0;
  }
  EXPECT_GE(with_everything, 4) << "at least each time that the content has doubled";
  EXPECT_LT(feed.stats().stored_blocks, 3 * 300u) << "at most half is repetition, about";
}

}  // namespace
}  // namespace pagoda::server
