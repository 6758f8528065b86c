// The results that `top` computes from its samples: rates, and the JSON object.
#include "clients/pagodactl/top/top_state.h"

#include <optional>
#include <string>
#include <utility>

#include "clients/pagodactl/top/top_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/clients/pagodactl/top/top_samples.h"

namespace pagoda {
namespace {

using ::testing::SizeIs;

TEST(TopStateTest, RatesAreOfTheTimeBetweenTwoAnswers) {
  const TopState state = TwoLooks();
  ASSERT_TRUE(state.rates().has_value());
  ASSERT_THAT(state.rates()->windows, SizeIs(1));
  EXPECT_DOUBLE_EQ(state.rates()->windows[0].allocated_blocks, 1234);
  EXPECT_DOUBLE_EQ(state.rates()->windows[0].lookup_tokens, 200);
  EXPECT_DOUBLE_EQ(*state.rates()->windows[0].hit_rate, 0.75);
  ASSERT_THAT(state.rates()->directions, SizeIs(1));
  EXPECT_DOUBLE_EQ(state.rates()->directions[0].copies, 40);
  EXPECT_DOUBLE_EQ(state.rates()->directions[0].bytes, 64 << 20);
}

TEST(TopStateTest, TheStreamsRatesAreOfTheTimeBetweenTwoLooksAtIt) {
  const TopState state = TwoLooks();
  ASSERT_TRUE(state.stream_rates().has_value());
  const StreamRates& rates = *state.stream_rates();
  EXPECT_DOUBLE_EQ(rates.events, 25);
  EXPECT_DOUBLE_EQ(rates.created_events, 0);
  EXPECT_DOUBLE_EQ(rates.stored_events, 18);
  EXPECT_DOUBLE_EQ(rates.updated_events, 5);
  EXPECT_DOUBLE_EQ(rates.removed_events, 2);
  const StreamRates::Window& window = rates.windows.at(0);
  EXPECT_DOUBLE_EQ(window.stored, 90);
  EXPECT_DOUBLE_EQ(window.offloaded, 40);
  EXPECT_DOUBLE_EQ(window.onboarded, 1);
  EXPECT_DOUBLE_EQ(window.removed.at(v1::REMOVAL_REASON_EVICTED), 3);
  EXPECT_DOUBLE_EQ(window.removed.at(v1::REMOVAL_REASON_RELEASED), 0);
}

TEST(TopStateTest, AReasonAndAWindowThatAreNewBeganAtNothing) {
  TopState state("here");
  TopSample first = Sample(0);
  first.stream.figures.windows.clear();
  state.Add(std::move(first));
  state.Add(Sample(1));
  EXPECT_DOUBLE_EQ(state.stream_rates()->windows.at(0).stored, 190);
  EXPECT_DOUBLE_EQ(state.stream_rates()->windows.at(0).removed.at(v1::REMOVAL_REASON_RELEASED), 8);
}

TEST(TopStateTest, OverANewSnapshotTheStreamHasNoRates) {
  TopState state = TwoLooks();
  TopSample third = Sample(3);
  third.stream.figures.snapshots = 2;
  third.stream.figures.events = {};
  state.Add(third);
  EXPECT_FALSE(state.stream_rates().has_value());
  EXPECT_TRUE(state.rates().has_value()) << "the answers are those of one incarnation";
  TopSample fourth = Sample(4);
  fourth.stream.figures.snapshots = 2;
  state.Add(fourth);
  EXPECT_TRUE(state.stream_rates().has_value());
  fourth.time += absl::Seconds(1);
  fourth.stream.time += absl::Seconds(1);
  fourth.stream.phase = StreamLook::Phase::kDown;
  state.Add(std::move(fourth));
  EXPECT_FALSE(state.stream_rates().has_value());
}

TEST(TopStateTest, HowFarTheStreamIsBehindTheAnswer) {
  TopSample sample = Sample(0);
  EXPECT_EQ(sample.events_behind(), 0u);
  sample.stream.figures.revision = 990;
  EXPECT_EQ(sample.events_behind(), 10u);
  sample.stream.figures.revision = 1200;
  EXPECT_EQ(sample.events_behind(), 0u) << "it was looked at after the answer";
  sample.stream.figures.epoch = 1;
  EXPECT_EQ(sample.events_behind(), std::nullopt);
}

TEST(TopStateTest, WithoutLookUpsThereIsNoHitRate) {
  TopState state("here");
  state.Add(Sample(0));
  TopSample second = Sample(0);
  second.time += absl::Seconds(1);
  state.Add(std::move(second));
  ASSERT_TRUE(state.rates().has_value());
  EXPECT_EQ(state.rates()->windows[0].hit_rate, std::nullopt);
}

TEST(TopStateTest, ARestartedDaemonStartsAnew) {
  TopState state = TwoLooks();
  TopSample other = Sample(3);
  other.status.set_epoch(0xDEF);
  other.status.set_revision(5);
  state.Add(std::move(other));
  EXPECT_FALSE(state.rates().has_value());
}

TEST(TopStateTest, ADirectionBeginsWithItsFirstCopy) {
  TopState state("here");
  TopSample first = Sample(0);
  first.status.mutable_transfers()->clear_directions();
  state.Add(std::move(first));
  state.Add(Sample(1));
  ASSERT_THAT(state.rates()->directions, SizeIs(1));
  EXPECT_DOUBLE_EQ(state.rates()->directions[0].copies, 40);
}

constexpr char kStreamOfTwoLooks[] = R"({
  "state": "live",
  "state_seconds": 7.0,
  "snapshots": 1,
  "interruption": null,
  "epoch": "2748",
  "revision": 1050,
  "snapshot_revision": 900,
  "behind_events": 0,
  "seconds_since_message": 0.12,
  "events_total": {
    "created": 1,
    "stored": 43,
    "updated": 10,
    "removed": 4
  },
  "events_per_second": {
    "created": 0.0,
    "stored": 18.0,
    "updated": 5.0,
    "removed": 2.0
  },
  "windows": [
    {
      "window": "full",
      "reusable_blocks": {
        "primary": 612,
        "secondary": 1500
      },
      "stored_blocks_total": 280,
      "stored_blocks_per_second": 90.0,
      "offloaded_blocks_total": 80,
      "offloaded_blocks_per_second": 40.0,
      "onboarded_blocks_total": 2,
      "onboarded_blocks_per_second": 1.0,
      "reprioritized_blocks_total": 0,
      "handed_out_blocks_total": 8,
      "removed_blocks_total": {
        "evicted": 6,
        "released": 8
      },
      "removed_blocks_per_second": {
        "evicted": 3.0,
        "released": 0.0
      }
    }
  ],
  "recent": [
    {
      "revision": 1049,
      "time": "1970-02-11T16:00:00+00:00",
      "window": "full",
      "type": "stored",
      "what": "block 1 after 2"
    },
    {
      "revision": 1050,
      "time": "1970-02-11T16:00:00+00:00",
      "window": "full",
      "type": "updated",
      "what": "block 5, tier primary -> secondary"
    }
  ]
})";

TEST(TopStateTest, AnObjectForPrograms) {
  const nlohmann::ordered_json json = TopJson(TwoLooks());
  EXPECT_EQ(json["endpoint"], "127.0.0.1:7070");
  EXPECT_EQ(json["events_per_second"], 25.0);
  EXPECT_EQ(json["windows"][0]["interval_hit_rate"], 0.75);
  EXPECT_EQ(json["status"]["windows"][0]["tiers"][0]["active_blocks"], 500);
  EXPECT_EQ(json["status"]["epoch"], json["stream"]["epoch"]);
  EXPECT_EQ(json["tenants"][0]["name"], "team-a");
  EXPECT_EQ(json["tenants"][0]["sequences"], "7");
  EXPECT_EQ(json["tenants"][0]["use"][0]["used_blocks"], 120);
  EXPECT_EQ(json["copies"][0]["copies_per_second"], 40.0);
}

TEST(TopStateTest, TheStreamsObjectForPrograms) {
  EXPECT_EQ(TopJson(TwoLooks())["stream"].dump(2), kStreamOfTwoLooks);
}

TEST(TopStateTest, AfterAFailureTheObjectHasTheErrorAndNoFigures) {
  TopState state = TwoLooks();
  ASSERT_TRUE(TopJson(state).contains("windows"));
  state.Fail(absl::UnavailableError("gone"), kStart);
  const nlohmann::ordered_json json = TopJson(state);
  EXPECT_EQ(json["error"], "gone");
  EXPECT_FALSE(json.contains("windows"));
}

TEST(TopJsonTest, TheEngineIsThereWithItsState) {
  TopState state("here");
  TopSample sample = Sample(0);
  sample.status.mutable_engine()->set_restarts(2);
  sample.status.mutable_engine()->set_problem("signal 9 ended it");
  state.Add(std::move(sample));
  const nlohmann::ordered_json engine = TopJson(state)["status"]["engine"];
  EXPECT_EQ(engine["up"], false);
  EXPECT_EQ(engine["restarts"], "2");
  EXPECT_EQ(engine["problem"], "signal 9 ended it");
  EXPECT_FALSE(engine.contains("addresses"));
  TopState none("here");
  none.Add(Sample(0));
  EXPECT_FALSE(TopJson(none)["status"].contains("engine"));
  EXPECT_TRUE(TopJson(none)["copies"].is_null());
}

TEST(TopJsonTest, AStreamThatIsNotLiveHasNoFigures) {
  TopState state("here");
  TopSample sample = Sample(0);
  sample.stream.phase = StreamLook::Phase::kSnapshot;
  sample.stream.interruption = absl::UnavailableError("the daemon ended the stream");
  state.Add(std::move(sample));
  EXPECT_EQ(TopJson(state)["stream"].dump(),
            R"({"state":"snapshot","state_seconds":5.0,"snapshots":1,)"
            R"("interruption":"the daemon ended the stream"})");
  EXPECT_TRUE(TopJson(state)["events_per_second"].is_null());
}

}  // namespace
}  // namespace pagoda
