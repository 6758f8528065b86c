// The JSON of the status page, from hand-made rows.
#include "server/http/status_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace pagoda::server {
namespace {

using enum SlotState;

Json Cells(const std::vector<SlotState>& slots, uint32_t max_cells) {
  return CellsJson(slots, max_cells);
}

TEST(CellsJsonTest, ACellForEachBlockIfTheyFit) {
  const Json map = Cells({kFree, kCached, kActive, kPinned, kInFlight}, 8);
  EXPECT_EQ(map["blocks_per_cell"], 1);
  EXPECT_EQ(map["cells"].dump(), "[[1,0,0,0,0],[0,1,0,0,0],[0,0,1,0,0],[0,0,0,1,0],[0,0,0,0,1]]");
}

TEST(CellsJsonTest, CellsOfTheSameSizeButTheLast) {
  const Json map = Cells({kFree, kFree, kCached, kCached, kActive, kActive, kFree}, 3);
  EXPECT_EQ(map["blocks_per_cell"], 3);
  EXPECT_EQ(map["cells"].dump(), "[[2,1,0,0,0],[0,1,2,0,0],[1,0,0,0,0]]");
}

TEST(CellsJsonTest, TheSpareIsLeftOut) {
  EXPECT_EQ(Cells({kFree, kSpare, kCached, kCached}, 3)["cells"].dump(),
            "[[1,0,0,0,0],[0,1,0,0,0],[0,1,0,0,0]]");
  EXPECT_EQ(Cells({}, 3)["cells"].dump(), "[]");
}

TEST(GpuReportJsonTest, SaysWhichKernelsRunAndWhichAreLeftOutAndWhy) {
  EXPECT_EQ(GpuReportJson(nullptr), Json(nullptr));
  v1::GpuSelfTest report;
  report.set_device("cuda:0, NVIDIA H200");
  v1::GpuSelfTest::Kernel* kernel = report.add_kernels();
  kernel->set_part("attention_decode");
  kernel->set_family("sm80");
  kernel->set_needed(true);
  kernel->set_outcome("runs");
  kernel->set_error(0.002);
  kernel->set_tolerance(0.01);
  kernel->set_seconds(0.5);
  kernel = report.add_kernels();
  kernel->set_part("attention_decode");
  kernel->set_family("hopper");
  kernel->set_needed(true);
  kernel->set_outcome("timeout");
  kernel->set_error(std::numeric_limits<double>::infinity());
  kernel->set_tolerance(0.01);
  kernel->set_why("it hung");
  const Json json = GpuReportJson(&report);
  EXPECT_EQ(json["device"], "cuda:0, NVIDIA H200");
  EXPECT_EQ(json["passed"], true);
  EXPECT_EQ(json["kernels"][0].dump(),
            R"({"part":"attention_decode","family":"sm80","outcome":"runs","needed":true,)"
            R"("error":0.002,"tolerance":0.01,"seconds":0.5,"why":""})");
  EXPECT_EQ(json["kernels"][1].dump(),
            R"({"part":"attention_decode","family":"hopper","outcome":"timeout","needed":true,)"
            R"("error":null,"tolerance":0.01,"seconds":null,"why":"it hung"})");
  report.mutable_problem()->set_message("no kernel");
  EXPECT_EQ(GpuReportJson(&report)["passed"], false);
}

class EventJsonTest : public ::testing::Test {
 protected:
  Json Of(decltype(Event::what) what) {
    return EventJson({.revision = Revision{7},
                      .time = absl::UnixEpoch() + absl::Milliseconds(1500),
                      .tenant = TenantId{1},
                      .what = std::move(what)},
                     tenants_, cache_);
  }
  const CacheInfo cache_ = {.tiers = {{.name = "primary"}, {.name = "dram"}}};
  const TenantTable tenants_ = *TenantTable::Create({{.name = "acme"}}, 1);
};

TEST_F(EventJsonTest, SaysWhatWasStoredWithoutTheTokens) {
  StoredEvent stored{.parent = BlockId{3}, .name_space = NamespaceKey{.cache_salt = "s"}};
  for (uint32_t i = 0; i < 10; ++i) {
    stored.blocks.push_back({.id = BlockId{i}, .hash = BlockHash{i}, .token_count = 4});
  }
  stored.tokens.assign(40, 123'456);
  const Json json = Of(stored);
  EXPECT_EQ(json["revision"], 7);
  EXPECT_EQ(json["time"], 1.5);
  EXPECT_EQ(json["type"], "stored");
  EXPECT_EQ(json["window"], "full");
  EXPECT_EQ(json["tenant"], "acme");
  EXPECT_EQ(json["blocks"], 10);
  EXPECT_EQ(json["block_ids"].dump(), "[0,1,2,3,4,5,6,7]");
  EXPECT_EQ(json["tokens"], 40);
  EXPECT_EQ(json["parent_block"], 3);
  EXPECT_EQ(json["namespace"].dump(), R"({"salt":"s"})");
  EXPECT_EQ(json["last_hash"], "0000000000000009");
  EXPECT_EQ(TextOf(json).find("123456"), std::string::npos);
}

TEST_F(EventJsonTest, SaysFromWhatToWhat) {
  const Json json = Of(UpdatedEvent{.id = BlockId{5},
                                    .tier = Change<Tier>{Tier::kPrimary, Tier::kSecondary},
                                    .priority = Change<Priority>{Priority{35}, Priority{80}}});
  EXPECT_EQ(json["type"], "updated");
  EXPECT_EQ(json["tier"].dump(), R"({"from":"primary","to":"dram"})");
  EXPECT_EQ(json["priority"].dump(), R"({"from":35,"to":80})");
}

TEST_F(EventJsonTest, SaysWhereCopiesAre) {
  const TierSet below = TierSet::FromBits(0b10);
  UpdatedEvent updated{.id = BlockId{5}, .tier = Change<Tier>{Tier::kSecondary, Tier::kPrimary}};
  updated.lower = Change<TierSet>{{}, below};
  const Json up = Of(updated);
  EXPECT_EQ(up["tier"].dump(), R"({"from":"dram","to":"primary"})");
  EXPECT_EQ(up["lower_tiers"].dump(), R"({"from":[],"to":["dram"]})");
  const Json stored = Of(StoredEvent{.blocks = {{.id = BlockId{1}, .lower = below}}});
  EXPECT_EQ(stored["lower_tiers"].dump(), R"(["dram"])");
  EXPECT_FALSE(Of(StoredEvent{.blocks = {{.id = BlockId{1}}}}).contains("lower_tiers"));
}

TEST_F(EventJsonTest, SaysWhichPinEnded) {
  const Json json = Of(
      UpdatedEvent{.id = BlockId{5},
                   .ended_pin = EndedPin{PinId{3}, PinEnd::kPrefixLeft, RemovalReason::kCleared}});
  EXPECT_EQ(json["ended_pin"].dump(), R"({"pin":3,"why":"prefix left","removal":"cleared"})");
}

TEST_F(EventJsonTest, SaysWhyBlocksLeft) {
  const Json one = Of(RemovedEvent{.reason = RemovalReason::kTakenOver, .blocks = {BlockId{4}}});
  EXPECT_EQ(one["type"], "removed");
  EXPECT_EQ(one["reason"], RemovalReasonName(RemovalReason::kTakenOver));
  EXPECT_EQ(one["block_ids"].dump(), "[4]");
  const Json all =
      Of(RemovedEvent{.reason = RemovalReason::kCleared, .scope = RemovedEvent::Scope::kWindow});
  EXPECT_EQ(all["scope"], "window");
  EXPECT_FALSE(all.contains("blocks"));
  const Json pools =
      Of(RemovedEvent{.reason = RemovalReason::kReleased, .scope = RemovedEvent::Scope::kPools});
  EXPECT_EQ(pools["scope"], "pools");
  EXPECT_FALSE(pools.contains("blocks"));
}

TEST_F(EventJsonTest, PoolsAndRawBlocksAreBothCreated) {
  const Json pools = Of(CreatedEvent{.blocks_per_tier = {8, 0}});
  EXPECT_EQ(pools["capacity_blocks"].dump(), R"({"primary":8})");
  const Json blocks = Of(CreatedEvent{.blocks = {BlockId{1}, BlockId{2}}});
  EXPECT_EQ(blocks["blocks"], 2);
}

TEST(StatusJsonTest, WhatIsNotUtf8IsMarked) {
  const Json json = SessionJson({.session = SessionId{1}, .client_name = "a\xff"}, {});
  EXPECT_NE(TextOf(json).find("\"client\":\"a\xEF\xBF\xBD\""), std::string::npos);
}

TEST(StatusJsonTest, ASessionWithoutALeaseHasNone) {
  EXPECT_TRUE(SessionJson({.lease = absl::InfiniteDuration()}, {})["lease_seconds"].is_null());
  const Json held = SessionJson({.lease = absl::Seconds(10)}, {});
  EXPECT_EQ(held["lease_seconds"], 10);
  EXPECT_TRUE(held["lease_left_seconds"].is_null());
}

TEST(StatusJsonTest, LagIsNeverNegative) {
  const TenantTable tenants = *TenantTable::Create({}, 1);
  const SubscriberRow row{.opened = absl::UnixEpoch(), .sent = Revision{10}};
  EXPECT_EQ(SubscriberJson(row, tenants, Revision{17}, absl::UnixEpoch())["lag_events"], 7);
  EXPECT_EQ(SubscriberJson(row, tenants, Revision{9}, absl::UnixEpoch())["lag_events"], 0);
}

}  // namespace
}  // namespace pagoda::server
