#include "events/event_log.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "tests/events/heap_in_use.h"

namespace pagoda {
namespace {

EventLog::Batch Events(uint64_t first, uint64_t count) {
  EventLog::Batch batch;
  for (uint64_t r = first; r < first + count; ++r) {
    batch.Add({.revision = Revision{r}, .what = RemovedEvent{}});
  }
  return batch;
}

std::vector<uint64_t> Revisions(const std::vector<EventLog::BatchPtr>& batches) {
  std::vector<uint64_t> revisions;
  for (const auto& batch : batches) {
    for (const Event& event : *batch) revisions.push_back(event.revision.value());
  }
  return revisions;
}

TEST(EventLogTest, StartsEmptyBeforeRevisionOne) {
  EventLog log({.max_events = 10});
  EXPECT_EQ(log.last(), Revision{0});
  EXPECT_EQ(log.oldest(), Revision{1});
  EXPECT_TRUE(log.Read(Revision{1}, 10)->empty());
  EXPECT_EQ(ReasonOf(log.Read(Revision{2}, 10).status()), Reason::kRevisionInFuture);
}

TEST(EventLogTest, ReadsFromTheBatchThatHoldsTheRevision) {
  EventLog log({.max_events = 100});
  log.Append(Events(1, 3));
  log.Append(Events(4, 2));
  log.Append(Events(6, 4));
  EXPECT_EQ(Revisions(*log.Read(Revision{5}, 100)), (std::vector<uint64_t>{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Revisions(*log.Read(Revision{5}, 2)), (std::vector<uint64_t>{4, 5}));
  EXPECT_TRUE(log.Read(Revision{10}, 2)->empty());
}

TEST(EventLogTest, AReadGivesAtLeastOneBatch) {
  EventLog log({.max_events = 100});
  log.Append(Events(1, 50));
  EXPECT_EQ(Revisions(*log.Read(Revision{1}, 1)).size(), 50u);
}

TEST(EventLogTest, DropsTheOldestAndSaysSo) {
  EventLog log({.max_events = 5});
  log.Append(Events(1, 3));
  log.Append(Events(4, 3));
  EXPECT_EQ(log.oldest(), Revision{4});
  EXPECT_EQ(ReasonOf(log.Read(Revision{3}, 10).status()), Reason::kRevisionCompacted);
  EXPECT_EQ(Revisions(*log.Read(Revision{4}, 10)), (std::vector<uint64_t>{4, 5, 6}));
}

EventBatch BatchOfTokens(uint64_t revision, size_t tokens) {
  EventBatch batch;
  batch.Add<StoredEvent>(Revision{revision}, absl::UnixEpoch(), kFullAttention, kDefaultTenant)
      .tokens.resize(tokens);
  return batch;
}

TEST(EventLogTest, IsBoundedInBytesToo) {
  EXPECT_GE(BatchOfTokens(1, 1000).bytes(), 4000u);
  EventLog log({.max_events = 100, .max_bytes = 10'000});
  for (uint64_t revision = 1; revision <= 10; ++revision) log.Append(BatchOfTokens(revision, 1000));
  EXPECT_EQ(log.oldest(), Revision{9}) << "two of more than 4,000 bytes fit";
}

TEST(EventLogTest, ItsBytesAreMemory) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  for (const size_t tokens : {0, 16, 3000}) {
    const size_t before = HeapInUse();
    EventLog log({.max_bytes = kMaxBytes});
    for (uint64_t revision = 1; revision <= 5000; ++revision) {
      log.Append(BatchOfTokens(revision, tokens));
    }
    EXPECT_GT(log.oldest(), Revision{1}) << "it is full";
    EXPECT_LE(log.bytes(), kMaxBytes);
    // The log's own memory for each batch adds up to that of its batches.
    const size_t batches = log.last().value() - log.oldest().value() + 1;
    EXPECT_GE(HeapInUse() - before, log.bytes());
    EXPECT_LE(HeapInUse() - before, log.bytes() + batches * 64 + 4096) << tokens << " tokens";
  }
}

TEST(EventLogTest, AReaderKeepsWhatTheLogHasDropped) {
  EventLog log({.max_events = 3});
  log.Append(Events(1, 3));
  const auto read = log.Read(Revision{1}, 10);
  log.Append(Events(4, 3));
  EXPECT_EQ(Revisions(*read), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(EventLogTest, CountsByType) {
  EventLog log({.max_events = 1});
  log.Append({{.revision = Revision{1}, .what = CreatedEvent{}},
              {.revision = Revision{2}, .what = RemovedEvent{}}});
  log.Append({{.revision = Revision{3}, .what = RemovedEvent{}}});
  const auto counts = log.type_counts();
  EXPECT_EQ(counts[Event{.what = CreatedEvent{}}.what.index()], 1u);
  EXPECT_EQ(counts[Event{.what = RemovedEvent{}}.what.index()], 2u);
  EXPECT_EQ(counts[Event{.what = StoredEvent{}}.what.index()], 0u);
}

TEST(EventLogTest, WaitingEndsWithAnEventOrWithClose) {
  EventLog log({.max_events = 10});
  std::thread writer([&] { log.Append(Events(1, 1)); });
  EXPECT_EQ(log.WaitBeyond(Revision{0}, absl::InfiniteDuration()), Revision{1});
  writer.join();
  EXPECT_EQ(log.WaitBeyond(Revision{1}, absl::Milliseconds(1)), Revision{1});
  std::thread closer([&] { log.Close(); });
  EXPECT_EQ(log.WaitBeyond(Revision{1}, absl::InfiniteDuration()), Revision{1});
  closer.join();
}

TEST(EventLogDeathTest, AHoleInTheRevisionsStopsTheProcess) {
  EventLog log({.max_events = 10});
  log.Append(Events(1, 1));
  EXPECT_DEATH(log.Append(Events(3, 1)), "revisions have no holes");
}

}  // namespace
}  // namespace pagoda
