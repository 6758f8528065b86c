#include "events/event_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "tests/events/heap_in_use.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;

// One event of each type, with every field set. The keys are too long for a string's own memory.
std::vector<Event> OneOfEach() {
  const NamespaceKey name_space{.cache_salt = std::string(100, 's')};
  std::vector<Event> events(5);
  events[0].what = CreatedEvent{.blocks_per_tier = {8, 2}, .blocks = {BlockId{1}}};
  events[1].what = StoredEvent{.parent_hash = BlockHash{3},
                               .parent = BlockId{3},
                               .name_space = name_space,
                               .blocks = {{.id = BlockId{4}, .token_count = 2}},
                               .tokens = {5, 6},
                               .extras = {{.extra_id = 7}, {}}};
  events[2].what = StoredEvent{.blocks = {{.id = BlockId{5}, .token_count = 1}}, .tokens = {5}};
  events[3].what = UpdatedEvent{.id = BlockId{4}, .hash = BlockHash{4}};
  events[4].what = RemovedEvent{.blocks = {BlockId{4}}, .hashes = {BlockHash{4}}};
  for (size_t i = 0; i < events.size(); ++i) {
    events[i].revision = Revision{i + 1};
    events[i].time = absl::FromUnixSeconds(static_cast<int64_t>(i));
    events[i].window = WindowSize{128};
    events[i].tenant = TenantId{2};
  }
  return events;
}

EventBatch BatchOf(const std::vector<Event>& events) {
  EventBatch batch;
  for (const Event& event : events) batch.Add(event);
  return batch;
}

EventBatch BatchOfTokens(size_t tokens) {
  EventBatch batch;
  batch.Add<StoredEvent>(Revision{1}, absl::UnixEpoch(), kFullAttention, kDefaultTenant)
      .tokens.resize(tokens);
  return batch;
}

TEST(EventBatchTest, HoldsEventsInOrder) {
  EXPECT_TRUE(EventBatch().empty());
  EXPECT_EQ(EventBatch().begin(), EventBatch().end());
  const std::vector<Event> events = OneOfEach();
  EventBatch first = BatchOf(events);
  const Event* const where = &first[1];
  const EventBatch batch = std::move(first);
  EXPECT_EQ(&batch[1], where) << "the batch moves, its events stay";
  EXPECT_EQ(batch.size(), 5u);
  EXPECT_EQ(std::vector<Event>(batch.begin(), batch.end()), events);
  EXPECT_EQ(batch.front(), events[0]);
  EXPECT_EQ(batch.back(), events[4]);
  EXPECT_THAT(batch.type_counts(), ElementsAre(1, 2, 1, 1));
}

TEST(EventBatchTest, ACopiedEventOutlivesItsBatch) {
  const std::vector<Event> events = OneOfEach();
  std::vector<Event> copies(events.size());
  {
    const EventBatch batch = BatchOf(events);
    copies[0] = batch[0];
    for (size_t i = 1; i < copies.size(); ++i) copies[i] = Event(batch[i]);
  }
  EXPECT_EQ(copies, events);
  auto& stored = std::get<StoredEvent>(copies[1].what);
  EXPECT_EQ(stored.tokens.get_allocator().resource(), std::pmr::get_default_resource());
  stored.tokens.resize(1000);
}

TEST(EventBatchTest, EventsTakeTheirMemoryFromTheBatch) {
  EventBatch batch = BatchOf(OneOfEach());
  const auto& stored = std::get<StoredEvent>(batch[1].what);
  EXPECT_NE(stored.tokens.get_allocator().resource(), std::pmr::get_default_resource());
  EXPECT_EQ(stored.tokens.get_allocator(), stored.blocks.get_allocator());
  EXPECT_EQ(stored.tokens.get_allocator(), stored.extras.get_allocator());
  const auto& created = std::get<CreatedEvent>(batch[0].what);
  EXPECT_EQ(stored.tokens.get_allocator(), created.blocks.get_allocator());
  EXPECT_EQ(stored.tokens.get_allocator(), created.blocks_per_tier.get_allocator());
  const auto& removed = std::get<RemovedEvent>(batch[4].what);
  EXPECT_EQ(stored.tokens.get_allocator(), removed.blocks.get_allocator());
  EXPECT_EQ(stored.tokens.get_allocator(), removed.hashes.get_allocator());
}

TEST(EventBatchTest, AllItsMemoryIsFreed) {
  const std::vector<Event> events = OneOfEach();
  const size_t before = HeapInUse();
  { EventBatch batch = BatchOf(events); }
  EXPECT_EQ(HeapInUse(), before);
  { EventBatch batch = BatchOfTokens(100'000); }
  EXPECT_EQ(HeapInUse(), before);
}

TEST(EventBatchTest, BytesAreTheMemoryThatItHolds) {
  EXPECT_EQ(EventBatch().bytes(), 0u);
  for (const size_t tokens : {1, 100, 10'000}) {
    const size_t before = HeapInUse();
    const EventBatch batch = BatchOfTokens(tokens);
    EXPECT_EQ(batch.bytes(), HeapInUse() - before) << tokens;
    EXPECT_GE(batch.bytes(), tokens * sizeof(TokenId));
  }
  const std::vector<Event> events = OneOfEach();
  const size_t before = HeapInUse();
  const EventBatch batch = BatchOf(events);
  // In addition, a shared key has a count of its owners.
  EXPECT_NEAR(batch.bytes(), HeapInUse() - before, 32);
}

TEST(EventBatchTest, AnExpectedBatchIsTwoAllocations) {
  constexpr uint64_t kEvents = 256;
  const auto fill = [](EventBatch& batch) {
    for (uint64_t i = 1; i <= kEvents; ++i) {
      auto& stored =
          batch.Add<StoredEvent>(Revision{i}, absl::UnixEpoch(), kFullAttention, kDefaultTenant);
      stored.blocks.push_back({.id = BlockId{7}, .token_count = 16});
      stored.tokens.resize(16);
    }
  };
  EventBatch first;
  fill(first);
  EventBatch expected(first.used_bytes());
  const size_t before = HeapAllocations();
  fill(expected);
  EXPECT_EQ(HeapAllocations() - before, 2u);
  EXPECT_LT(expected.bytes(), first.used_bytes() + 1024);
}

TEST(EventBatchTest, EventsOfOneNamespaceShareItsKey) {
  const NamespaceKey red{.tenant = std::string("red")}, blue{.tenant = std::string("blue")};
  std::vector<Event> events;
  for (const NamespaceKey& key : {red, red, NamespaceKey(), blue}) {
    events.push_back({.what = StoredEvent{.name_space = key}});
  }
  const EventBatch batch = BatchOf(events);
  const auto key = [&](size_t i) { return &*std::get<StoredEvent>(batch[i].what).name_space; };
  EXPECT_THAT((std::vector<NamespaceKey>{*key(0), *key(1), *key(2), *key(3)}),
              ElementsAre(red, red, NamespaceKey(), blue));
  EXPECT_EQ(key(0), key(1));
  EXPECT_NE(key(0), &*std::get<StoredEvent>(events[0].what).name_space) << "another batch's";
}

TEST(EventBatchDeathTest, AnEventThatIsNotThereStopsTheProcess) {
  EXPECT_DEATH(EventBatch().at(0), "as many events");
}

}  // namespace
}  // namespace pagoda
