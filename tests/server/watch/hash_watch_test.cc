// A Watch stream of hashes by chunks, compared with one of everything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

constexpr uint32_t kChunkTokens = 2 * kTestTokensPerBlock;

Config TieredConfig() {
  Config config = TestConfig();
  config.cache.secondary = BlockBudget{{24}};
  return config;
}

// What a stream of hashes must have, from the events of a stream of everything: full attention, so
// every parent is known.
class Projection {
 public:
  // The events' parts, in order.
  std::vector<v1::Event> Of(const std::vector<v1::Event>& events) {
    std::vector<v1::Event> parts;
    for (const v1::Event& event : events) {
      v1::Event part;
      part.set_revision(event.revision());
      *part.mutable_time() = event.time();
      part.set_window_size(event.window_size());
      if (event.has_created()) {
        *part.mutable_created()->mutable_capacity() = event.created().capacity();
        if (event.created().capacity_size() != 0) parts.push_back(part);
      } else if (event.has_stored()) {
        Store(event.stored(), part.mutable_stored());
        if (part.stored().blocks_size() != 0) parts.push_back(part);
      } else if (event.has_updated()) {
        if (Update(event.updated(), part.mutable_updated())) parts.push_back(part);
      } else {
        Remove(event.removed(), part.mutable_removed());
        if (part.removed().block_hashes_size() != 0) parts.push_back(part);
      }
    }
    return parts;
  }

 private:
  bool EndsChunk(uint32_t id) const { return ends_.at(id) % kChunkTokens == 0; }

  void Store(const v1::StoredEvent& stored, v1::StoredEvent* out) {
    uint32_t end = stored.has_parent_block_id() ? ends_.at(stored.parent_block_id()) : 0;
    for (const v1::StoredBlock& block : stored.blocks()) {
      ends_[block.block_id()] = end += static_cast<uint32_t>(block.tokens_size());
      if (!EndsChunk(block.block_id())) continue;
      v1::StoredBlock* left = out->add_blocks();
      left->set_block_hash(block.block_hash());
      left->set_tier(block.tier());
      *left->mutable_lower_tiers() = block.lower_tiers();
    }
  }
  bool Update(const v1::UpdatedEvent& updated, v1::UpdatedEvent* out) const {
    if (updated.has_ended_pin() || !EndsChunk(updated.block_id())) return false;
    out->set_block_hash(updated.block_hash());
    if (updated.has_tier()) *out->mutable_tier() = updated.tier();
    if (updated.has_lower_tiers()) *out->mutable_lower_tiers() = updated.lower_tiers();
    return updated.has_tier() || updated.has_lower_tiers();
  }
  void Remove(const v1::RemovedEvent& removed, v1::RemovedEvent* out) const {
    out->set_reason(removed.reason());
    if (removed.reason() == v1::REMOVAL_REASON_RELEASED) return;
    for (int i = 0; i < removed.block_ids_size(); ++i) {
      if (EndsChunk(removed.block_ids(i))) out->add_block_hashes(removed.block_hashes(i));
    }
  }

  std::map<uint32_t, uint32_t> ends_;  // By block id.
};

// The hashes with their tiers that the events leave.
using Copies = std::set<std::tuple<uint64_t, int, std::vector<int>>>;
Copies Mirror(const std::vector<v1::Event>& events) {
  std::map<uint64_t, std::tuple<uint64_t, int, std::vector<int>>> mirror;
  for (const v1::Event& event : events) {
    for (const v1::StoredBlock& block : event.stored().blocks()) {
      mirror[block.block_hash()] = {block.block_hash(),
                                    block.tier(),
                                    {block.lower_tiers().begin(), block.lower_tiers().end()}};
    }
    if (event.has_updated()) {
      auto& [hash, tier, lower] = mirror.at(event.updated().block_hash());
      if (event.updated().has_tier()) tier = event.updated().tier().new_value();
      if (event.updated().has_lower_tiers()) {
        const auto& now = event.updated().lower_tiers().new_value();
        lower.assign(now.begin(), now.end());
      }
    }
    for (const uint64_t hash : event.removed().block_hashes()) mirror.erase(hash);
  }
  Copies copies;
  for (const auto& [hash, copy] : mirror) copies.insert(copy);
  return copies;
}

class HashWatchTest : public DaemonTest {
 protected:
  HashWatchTest() : DaemonTest(TieredConfig()) {}

  static v1::WatchRequest Hashes(uint32_t chunk_tokens = kChunkTokens) {
    v1::WatchRequest request;
    request.set_content(v1::EVENT_CONTENT_HASHES);
    request.set_chunk_tokens(chunk_tokens);
    return request;
  }
  static v1::WatchRequest From(uint64_t revision, v1::WatchRequest request = {}) {
    request.set_from_revision(revision);
    return request;
  }

  // The events up to the last one so far. `bytes`, if given, gets the size of the messages.
  std::vector<v1::Event> Read(const v1::WatchRequest& request, size_t* bytes = nullptr) {
    const uint64_t last = Status().revision();
    const auto context = NewContext();
    const auto reader = events().Watch(context.get(), request);
    std::vector<v1::Event> all;
    v1::WatchResponse message;
    uint64_t covered = 0;
    bool in_snapshot = request.snapshot();
    while ((in_snapshot || covered < last) && reader->Read(&message)) {
      if (covered != 0 && !message.snapshot_begin()) {
        EXPECT_EQ(message.previous_revision(), covered);
      }
      covered = message.revision();
      if (bytes != nullptr) *bytes += message.ByteSizeLong();
      all.insert(all.end(), message.events().begin(), message.events().end());
      if (message.snapshot_end()) in_snapshot = false;
    }
    EXPECT_EQ(covered, last);
    context->TryCancel();
    return all;
  }
  std::string RefusalOf(const v1::WatchRequest& request) {
    const auto context = NewContext();
    const auto reader = events().Watch(context.get(), request);
    v1::WatchResponse message;
    EXPECT_FALSE(reader->Read(&message));
    return InfoOf(reader->Finish()).reason();
  }
  // Prompts that share beginnings and have tails, in a cache that is too small for them.
  void MakeTraffic(uint32_t seed, int prompts) {
    const v1::SessionRef session = OpenRef();
    std::mt19937 random(seed);
    for (int i = 0; i < prompts; ++i) {
      std::vector<uint32_t> tokens = TokensTo(4 * (random() % 8));
      for (uint32_t left = 1 + random() % 40; left > 0; --left) tokens.push_back(random() % 100);
      CacheTokens(session, tokens);
      if (i % 16 == 15) {
        v1::Operation forget;
        for (const uint32_t token : TokensTo(8))
          forget.mutable_invalidate_prefix()->add_tokens(token);
        EXPECT_FALSE(Run(session, forget).has_error());
      }
    }
    Close(session);
  }
};

TEST_F(HashWatchTest, AChunkIsAHashAndItsTier) {
  const v1::SessionRef session = OpenRef();
  const uint64_t before = Status().revision();
  CacheTokens(session, TokensTo(22));  // Five whole blocks and a tail.
  const std::vector<v1::Event> all = Read(From(before + 1));
  const std::vector<v1::Event> hashes = Read(From(before + 1, Hashes()));
  ASSERT_THAT(hashes, ::testing::SizeIs(1));
  v1::Event expected;
  expected.set_revision(all[0].revision());
  *expected.mutable_time() = all[0].time();
  for (const int block : {1, 3}) {
    v1::StoredBlock* stored = expected.mutable_stored()->add_blocks();
    stored->set_block_hash(all[0].stored().blocks(block).block_hash());
    stored->set_tier(v1::TIER_PRIMARY);
  }
  EXPECT_EQ(hashes[0].SerializeAsString(), expected.SerializeAsString()) << hashes[0].DebugString();
  Close(session);
}

TEST_F(HashWatchTest, TheStreamIsTheProjectionOfAllEvents) {
  MakeTraffic(1, 200);
  const std::vector<v1::Event> all = Read(From(1));
  const std::vector<v1::Event> expected = Projection().Of(all);
  const std::vector<v1::Event> hashes = Read(From(1, Hashes()));
  std::set<int> kinds;
  ASSERT_EQ(hashes.size(), expected.size());
  for (size_t i = 0; i < hashes.size(); ++i) {
    ASSERT_EQ(hashes[i].SerializeAsString(), expected[i].SerializeAsString())
        << hashes[i].DebugString() << expected[i].DebugString();
    kinds.insert(hashes[i].event_case());
  }
  EXPECT_EQ(kinds.size(), 4u) << "every type of event occurs";

  // It is resumed in the middle, and a stream from there has the rest.
  const uint64_t middle = all[all.size() / 2].revision();
  std::vector<v1::Event> rest;
  for (const v1::Event& event : expected) {
    if (event.revision() >= middle) rest.push_back(event);
  }
  const std::vector<v1::Event> resumed = Read(From(middle, Hashes()));
  ASSERT_EQ(resumed.size(), rest.size());
  EXPECT_EQ(resumed.front().SerializeAsString(), rest.front().SerializeAsString());
}

TEST_F(HashWatchTest, ALateReaderGetsTheSameHashesFromASnapshot) {
  MakeTraffic(2, 100);
  const Copies followed = Mirror(Read(From(1, Hashes())));
  EXPECT_GT(followed.size(), 4u);
  v1::WatchRequest request = Hashes();
  request.set_snapshot(true);
  EXPECT_EQ(Mirror(Read(request)), followed);
}

TEST_F(HashWatchTest, WithoutAChunkEachWholeBlockIsTold) {
  const v1::SessionRef session = OpenRef();
  const uint64_t before = Status().revision();
  CacheTokens(session, TokensTo(22));
  EXPECT_EQ(Mirror(Read(From(before + 1, Hashes(0)))).size(), 5u);
  EXPECT_EQ(Mirror(Read(From(before + 1, Hashes(kTestTokensPerBlock)))).size(), 5u);
  Close(session);
}

TEST_F(HashWatchTest, OtherFiltersHoldToo) {
  MakeTraffic(3, 60);
  v1::WatchRequest removals = From(1, Hashes());
  removals.add_types(v1::EVENT_TYPE_REMOVED);
  const std::vector<v1::Event> removed = Read(removals);
  ASSERT_FALSE(removed.empty());
  for (const v1::Event& event : removed) {
    EXPECT_TRUE(event.has_removed());
    EXPECT_EQ(event.removed().block_ids_size(), 0);
  }
  v1::WatchRequest tier = From(1, Hashes());
  tier.add_tiers(v1::TIER_SECOND);
  for (const v1::Event& event : Read(tier)) EXPECT_FALSE(event.has_stored()) << "all begin above";
}

TEST_F(HashWatchTest, ChunksThatAreNoWholeBlocksAreRefused) {
  EXPECT_EQ(RefusalOf(Hashes(kTestTokensPerBlock + 1)), "INVALID_ARGUMENT");
  EXPECT_EQ(RefusalOf(Hashes(kTestTokensPerBlock / 2)), "INVALID_ARGUMENT");
  v1::WatchRequest tokens;
  tokens.set_chunk_tokens(kChunkTokens);
  EXPECT_EQ(RefusalOf(tokens), "INVALID_ARGUMENT") << "tokens do not come by chunks";
  tokens.set_content(v1::EVENT_CONTENT_TOKENS);
  EXPECT_EQ(RefusalOf(tokens), "INVALID_ARGUMENT");
  v1::WatchRequest unknown;
  unknown.set_content(static_cast<v1::EventContent>(77));
  EXPECT_EQ(RefusalOf(unknown), "INVALID_ARGUMENT");
}

// events/README.md names these figures.
TEST_F(HashWatchTest, AStoredHashTakesFewBytes) {
  const v1::SessionRef session = OpenRef();
  const uint64_t before = Status().revision();
  CacheTokens(session, TokensTo(16 * kTestTokensPerBlock));
  for (const uint32_t blocks : {1u, 2u, 16u}) {
    const std::vector<v1::Event> events =
        Read(From(before + 1, Hashes(blocks * kTestTokensPerBlock)));
    ASSERT_THAT(events, ::testing::SizeIs(1));
    const v1::StoredEvent& stored = events[0].stored();
    ASSERT_EQ(stored.blocks_size(), static_cast<int>(16 / blocks));
    EXPECT_EQ(stored.ByteSizeLong(), 13u * stored.blocks_size());
    v1::Event late = events[0];  // The event's numbers after millions of events.
    late.set_revision(200'000'000);
    late.mutable_time()->set_nanos(999'999'999);
    v1::WatchResponse message;
    *message.add_events() = late;
    if (blocks == 16) {
      EXPECT_EQ(message.ByteSizeLong(), 36u);
    }
  }
  Close(session);
}

}  // namespace
}  // namespace pagoda::server
