#include "server/bridges/smg_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;

constexpr Viewer kOperator{};

TEST(SmgWireTest, AStoreCarriesEachBlocksTokens) {
  RouterBatch batch{.number = 70, .first_event = 41};
  batch.time = absl::UnixEpoch() + absl::Milliseconds(2500);
  batch.events = {
      {.what =
           BlocksStored{.tier = Tier(1),
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

TEST(SmgWireTest, WhoSharesIsNotToldOfBlocksUnderASalt) {
  const auto tenants = TenantTable::Create({{.name = "alice", .shares = true}}, 1);
  ASSERT_TRUE(tenants.ok());
  const Viewer alice{.caller = {Role::kTenant, TenantId(1)}, .tenants = &*tenants};
  const auto stored = [](std::string salt) {
    return BlocksStored{
        .name_space = std::make_shared<NamespaceKey>(NamespaceKey{.cache_salt = std::move(salt)}),
        .hashes = {BlockHash(1)},
        .tokens = {9}};
  };
  RouterBatch batch{.number = 1};
  batch.events = {{kDefaultTenant, stored("secret")}, {kDefaultTenant, stored("")}};
  smg::grpc::common::KvEventBatch out, all;
  RouterBatchToSmg(batch, {.tokens_per_block = 1}, alice, &out);
  ASSERT_EQ(out.events_size(), 1);
  EXPECT_EQ(out.events(0).event_id(), 1u) << "the one without a salt";
  RouterBatchToSmg(batch, {.tokens_per_block = 1}, kOperator, &all);
  EXPECT_EQ(all.events_size(), 2);
}

TEST(SmgWireTest, ATenantSeesItsOwnAndTheNumbersOfTheRest) {
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
