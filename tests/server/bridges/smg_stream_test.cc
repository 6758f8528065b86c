#include "server/bridges/smg_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;

constexpr Viewer kOperator{};

RouterBatchPtr Batch(uint64_t number, size_t bytes = 1) {
  auto batch = std::make_shared<RouterBatch>();
  batch->number = number;
  batch->bytes = bytes;
  return batch;
}

TEST(RouterRingTest, KnowsWhatIsGoneAndWhatNeverWas) {
  RouterRing ring({.max_batches = 3}, 1000);
  EXPECT_EQ(ring.next(), 1000u);
  EXPECT_EQ(*ring.At(1000), nullptr) << "the next one is not an error";
  for (uint64_t number = 1000; number < 1005; ++number) ring.Push(Batch(number));
  EXPECT_EQ(ring.next(), 1005u);
  for (uint64_t number = 1002; number < 1005; ++number) {
    EXPECT_EQ((*ring.At(number))->number, number);
  }
  EXPECT_EQ(*ring.At(1005), nullptr);
  for (const uint64_t gone : {1000, 1001}) {
    EXPECT_TRUE(absl::IsOutOfRange(ring.At(gone).status())) << gone;
  }
  for (const uint64_t never : {uint64_t{1}, uint64_t{999}, uint64_t{1006}, ~uint64_t{0}}) {
    EXPECT_TRUE(absl::IsDataLoss(ring.At(never).status())) << never;
  }
}

TEST(RouterRingTest, IsBoundedInBytesButKeepsTheLastBatch) {
  RouterRing ring({.max_bytes = 100}, 1);
  for (uint64_t number = 1; number <= 5; ++number) ring.Push(Batch(number, 40));
  EXPECT_FALSE(ring.At(3).ok());
  EXPECT_TRUE(ring.At(4).ok());
  ring.Push(Batch(6, 1000));
  EXPECT_FALSE(ring.At(5).ok());
  EXPECT_EQ((*ring.At(6))->number, 6u);
}

TEST(SmgTest, AStoreCarriesEachBlocksTokens) {
  RouterBatch batch{.number = 70, .first_event = 41};
  batch.time = absl::UnixEpoch() + absl::Milliseconds(2500);
  batch.events = {
      {.what =
           BlocksStored{.tier = Tier::kSecondary,
                        .parent = BlockHash(0x8000000000000000),
                        .name_space = std::make_shared<NamespaceKey>(NamespaceKey{.lora_id = 7}),
                        .hashes = {BlockHash(~uint64_t{0}), BlockHash(2)},
                        .tokens = {1, 2, 3, 4}}},
      {.what = BlocksRemoved{.hashes = {BlockHash(5)}}},
      {.what = BlocksRemoved{.window = WindowSize(4), .hashes = {BlockHash(6)}}},
      {.what = AllCleared{}}};
  smg::grpc::common::KvEventBatch out;
  RouterBatchToSmg(batch, {.tokens_per_block = 2}, kOperator, &out);
  EXPECT_EQ(out.sequence_number(), 70u);
  EXPECT_EQ(out.timestamp(), 2.5);
  ASSERT_EQ(out.events_size(), 3) << "of another window nothing is told";
  const auto& stored = out.events(0).stored();
  EXPECT_EQ(out.events(0).event_id(), 41u);
  EXPECT_EQ(stored.parent_block_hash(), std::numeric_limits<int64_t>::min());
  ASSERT_EQ(stored.blocks_size(), 2);
  EXPECT_EQ(stored.blocks(0).block_hash(), -1);
  EXPECT_THAT(stored.blocks(1).token_ids(), ElementsAre(3, 4));
  EXPECT_EQ(stored.blocks(1).block_size(), 2);
  EXPECT_EQ(stored.blocks(1).lora_id(), 7);
  EXPECT_EQ(stored.blocks(1).cache_level(), 1);
  EXPECT_THAT(out.events(1).removed().block_hashes(), ElementsAre(5));
  EXPECT_EQ(out.events(1).removed().cache_level(), 0);
  EXPECT_TRUE(out.events(2).has_cleared());
  EXPECT_EQ(out.events(2).event_id(), 44u);
}

TEST(SmgTest, ATenantSeesItsOwnAndTheNumbersOfTheRest) {
  const auto tenants = TenantTable::Create({{.name = "alice"}, {.name = "bob"}}, 1);
  ASSERT_TRUE(tenants.ok());
  const Viewer alice{.caller = {Role::kTenant, TenantId(1)}, .tenants = &*tenants};
  RouterBatch batch{.number = 1};
  batch.events = {{TenantId(1), BlocksRemoved{.hashes = {BlockHash(1)}}},
                  {TenantId(2), BlocksRemoved{.hashes = {BlockHash(2)}}}};
  smg::grpc::common::KvEventBatch out;
  RouterBatchToSmg(batch, {.tokens_per_block = 1}, alice, &out);
  ASSERT_EQ(out.events_size(), 1);
  EXPECT_THAT(out.events(0).removed().block_hashes(), ElementsAre(1));
  batch.events.erase(batch.events.begin());
  out.Clear();
  RouterBatchToSmg(batch, {.tokens_per_block = 1}, alice, &out);
  EXPECT_EQ(out.events_size(), 0);
  EXPECT_EQ(out.sequence_number(), 1u);
}

}  // namespace
}  // namespace pagoda::server
