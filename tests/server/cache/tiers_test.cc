// A daemon with a lower tier and several windows: sizes, moves, and their counters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "manager/shared_manager.h"
#include "pools/sizing.h"
#include "server/daemon.h"
#include "server/directory/cache_directory.h"
#include "tests/server/test_daemon.h"

namespace pagoda::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Config TwoTiers() {
  Config config = TestConfig();
  config.cache.secondary = BlockBudget{{8}};
  return config;
}

class TiersTest : public DaemonTest {
 protected:
  TiersTest() : DaemonTest(TwoTiers()) {}

  // Offloads or onboards a prefix, and waits for its copies.
  v1::OperationResult Move(const v1::SessionRef& session, const v1::Operation& operation) {
    const v1::OperationResult moved = Run(session, operation);
    v1::Operation wait;
    wait.mutable_wait_for_ticket()->set_ticket(moved.has_offload_prefix()
                                                   ? moved.offload_prefix().ready_ticket()
                                                   : moved.prefetch_prefix().ready_ticket());
    EXPECT_EQ(ReasonFor(session, wait), "");
    return moved;
  }

  static v1::Operation OffloadOp(const std::vector<uint32_t>& tokens) {
    v1::Operation operation;
    operation.mutable_offload_prefix()->mutable_tokens()->Add(tokens.begin(), tokens.end());
    return operation;
  }
  static v1::Operation PrefetchOp(const std::vector<uint32_t>& tokens) {
    v1::Operation operation;
    operation.mutable_prefetch_prefix()->mutable_tokens()->Add(tokens.begin(), tokens.end());
    return operation;
  }
  static v1::Operation PinOp(const std::vector<uint32_t>& tokens) {
    v1::Operation operation;
    operation.mutable_pin_prefix()->mutable_tokens()->Add(tokens.begin(), tokens.end());
    return operation;
  }
};

TEST_F(TiersTest, MovesAreCountedInTheStatus) {
  const v1::SessionRef session = OpenRef();
  CacheTokens(session, TokensTo(12));
  EXPECT_EQ(Move(session, OffloadOp(TokensTo(12))).offload_prefix().blocks(), 3u);
  EXPECT_EQ(Move(session, PrefetchOp(TokensTo(8))).prefetch_prefix().blocks(), 2u);
  EXPECT_EQ(Run(session, PinOp(TokensTo(12))).pin_prefix().blocks(), 3u);

  const v1::GetStatusResponse status = Status();
  const v1::WindowStatus& window = status.windows(0);
  ASSERT_EQ(window.tiers_size(), 2);
  EXPECT_EQ(window.tiers(1).tier(), v1::TIER_SECOND);
  EXPECT_EQ(window.tiers(1).capacity_blocks(), 8u);
  EXPECT_EQ(window.tiers(0).pinned_blocks(), 2u);
  EXPECT_EQ(window.tiers(1).pinned_blocks(), 1u);
  EXPECT_EQ(window.offloaded_blocks_total(), 3u);
  EXPECT_EQ(window.onboarded_blocks_total(), 2u);
  EXPECT_EQ(window.tiers(0).duplicate_blocks(), 0u);
  EXPECT_EQ(window.tiers(1).duplicate_blocks(), 2u);
  EXPECT_EQ(window.tiers(1).cached_blocks(), 2u);
  EXPECT_EQ(window.pinned_blocks(), 3u);
  EXPECT_EQ(window.pin_budget_blocks(), (kTestBlocks + 8) / 4);
  EXPECT_EQ(status.pins(), 1u);
  EXPECT_EQ(status.cache().windows(0).blocks(1), 8u);
  EXPECT_EQ(status.cache().windows(0).blocks(1), 8u);
  ASSERT_EQ(status.cache().tiers_size(), 2);
  EXPECT_EQ(status.cache().tiers(0).tier(), v1::TIER_PRIMARY);
  EXPECT_EQ(status.cache().tiers(1).name(), "secondary");
  EXPECT_EQ(status.cache().tiers(1).medium(), v1::MEDIUM_HOST);
  EXPECT_EQ(window.tiers(1).name(), "secondary");
  EXPECT_EQ(window.tiers(0).prefix_hit_tokens_total() + window.tiers(1).prefix_hit_tokens_total(),
            window.prefix_hit_tokens_total());

  ASSERT_EQ(status.transfers().directions_size(), 2);
  const v1::TransferDirection& down = status.transfers().directions(0);
  EXPECT_EQ(down.source(), v1::TIER_PRIMARY);
  EXPECT_EQ(down.target(), v1::TIER_SECOND);
  EXPECT_EQ(down.source_name(), "primary");
  EXPECT_EQ(down.target_name(), "secondary");
  EXPECT_EQ(down.copies_total(), 3u);
  EXPECT_EQ(down.bytes_total(), 3 * window.tiers(0).block_bytes());
  EXPECT_EQ(status.transfers().directions(1).copies_total(), 2u);
  EXPECT_EQ(status.transfers().failed_total(), 0u);

  v1::Operation unpin;
  unpin.mutable_unpin_prefix()->set_pin_id(1);
  EXPECT_EQ(ReasonFor(session, unpin), "");
}

TEST_F(TiersTest, WhatCameUpGoesDownFreely) {
  const v1::SessionRef session = OpenRef();
  CacheTokens(session, TokensTo(12));
  Move(session, OffloadOp(TokensTo(12)));
  Move(session, PrefetchOp(TokensTo(8)));
  v1::InspectPrefixRequest request;
  const std::vector<uint32_t> tokens = TokensTo(12);
  request.mutable_tokens()->Add(tokens.begin(), tokens.end());
  v1::InspectPrefixResponse response;
  ASSERT_TRUE(admin().InspectPrefix(NewContext().get(), request, &response).ok());
  ASSERT_THAT(response.blocks(), SizeIs(3));
  EXPECT_EQ(response.blocks(1).tier(), v1::TIER_PRIMARY);
  EXPECT_THAT(response.blocks(1).lower_tiers(), ElementsAre(v1::TIER_SECOND));
  EXPECT_EQ(response.blocks(2).tier(), v1::TIER_SECOND);
  EXPECT_THAT(response.blocks(2).lower_tiers(), IsEmpty());

  EXPECT_EQ(Run(session, OffloadOp(TokensTo(12))).offload_prefix().blocks(), 2u);
  const v1::WindowStatus window = Status().windows(0);
  EXPECT_EQ(window.offloaded_blocks_total(), 3u);
  EXPECT_EQ(window.freely_evicted_blocks_total(), 2u);
  EXPECT_EQ(window.tiers(1).duplicate_blocks(), 0u);
  EXPECT_EQ(window.tiers(1).cached_blocks(), 3u);
}

TEST_F(TiersTest, PinsOutliveTheirSession) {
  const v1::SessionRef session = OpenRef();
  CacheTokens(session, TokensTo(4));
  const uint64_t pin = Run(session, PinOp(TokensTo(4))).pin_prefix().pin_id();
  ASSERT_TRUE(Close(session).ok());
  EXPECT_EQ(Status().pins(), 1u);
  v1::Operation unpin;
  unpin.mutable_unpin_prefix()->set_pin_id(pin);
  EXPECT_EQ(ReasonFor(OpenRef(), unpin), "");
  EXPECT_EQ(ReasonFor(OpenRef(), unpin), "UNKNOWN_PIN");
}

TEST_F(TiersTest, AnotherDaemonsBudgetsAreDividedBetweenItsWindows) {
  Config config = TestConfig();
  config.cache.layers = {{.count = 3, .window = 8, .num_kv_heads = 1, .head_dim = 8},
                         {.count = 1, .window = 0, .num_kv_heads = 1, .head_dim = 8}};
  config.cache.workload = {.sequence_tokens = 64, .chunk_tokens = 8};
  const uint32_t layer_bytes = 2 * kTestTokensPerBlock * 8 * 4;
  config.cache.primary = ByteBudget{1000 * layer_bytes};
  config.cache.secondary = FractionBudget{.fraction = 1e-3};
  const auto daemon = Daemon::Start(config);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const ManagerStats stats = (*daemon)->manager().Read(&BlockManager::Stats);
  ASSERT_EQ(stats.windows.size(), 2u);
  const uint32_t in_window = stats.windows[0].tiers[0].capacity;
  const uint32_t in_full = stats.windows[1].tiers[0].capacity;
  // A sequence holds (8 + 8) / 4 + 1 blocks in the window, 16 in the other one.
  EXPECT_NEAR(in_window / 5.0, in_full / 16.0, 1.0);
  EXPECT_LE(3 * in_window + in_full, 1000u);
  EXPECT_GT(3 * in_window + in_full, 995u);
  EXPECT_GT(stats.windows[0].tiers[1].capacity, 0u);
}

TEST_F(TiersTest, AListOfTiersIsTheCaches) {
  Config config = TestConfig();
  config.cache.tiers = {{.name = "near", .size = BlockBudget{{kTestBlocks}}},
                        {.name = "far", .size = BlockBudget{{8}}}};
  const auto daemon = Daemon::Start(config);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const CacheInfo& info = (*daemon)->manager().info();
  ASSERT_EQ(info.tiers.size(), 2u);
  EXPECT_EQ(info.tiers[0].name, "near");
  EXPECT_EQ(info.tiers[1].name, "far");
  EXPECT_EQ(info.windows[0].blocks_in(kPrimaryTier), kTestBlocks);
  EXPECT_EQ(info.windows[0].blocks_in(Tier(1)), 8u);
}

TEST_F(TiersTest, ABudgetThatHoldsNothingIsRefused) {
  Config config = TestConfig();
  config.cache.primary = ByteBudget{100};
  EXPECT_THAT(std::string(Daemon::Start(config).status().message()),
              HasSubstr("the primary tier gets 100 bytes"));
  config = TestConfig();
  config.cache.primary = BlockBudget{{4, 5}};
  EXPECT_THAT(std::string(Daemon::Start(config).status().message()),
              HasSubstr("2 block counts; 1 is needed"));
}

}  // namespace
}  // namespace pagoda::server
