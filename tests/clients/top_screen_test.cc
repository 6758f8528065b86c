// The picture of `top` at several sizes, line by line.
#include "clients/pagodactl/top_screen.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1000);

void SetTier(v1::Tier name, uint32_t active, uint32_t cached, uint32_t pinned, uint32_t in_flight,
             uint32_t free, v1::TierStatus* tier) {
  tier->set_tier(name);
  tier->set_capacity_blocks(active + cached + pinned + in_flight + free);
  tier->set_active_blocks(active);
  tier->set_cached_blocks(cached);
  tier->set_pinned_blocks(pinned);
  tier->set_in_flight_blocks(in_flight);
  tier->set_free_blocks(free);
}

// A daemon with one window and two tiers, `seconds` after the first look.
TopSample Sample(int seconds) {
  TopSample sample{.time = kStart + absl::Seconds(seconds), .status = {}, .tenants = {}};
  v1::GetStatusResponse& status = sample.status;
  status.set_version("1.2.3");
  status.set_epoch(0xABC);
  status.mutable_uptime()->set_seconds(7500);
  status.mutable_cache()->set_name("demo");
  status.mutable_cache()->set_model_fingerprint("tiny");
  status.mutable_cache()->set_tokens_per_block(16);
  status.set_sessions(12);
  status.set_sequences(1200);
  status.set_subscribers(3);
  status.set_pins(2);
  status.set_revision(1000 + 25 * seconds);
  v1::WindowStatus* window = status.add_windows();
  SetTier(v1::TIER_PRIMARY, 500, 250, 100, 1, 149, window->add_tiers());
  SetTier(v1::TIER_SECONDARY, 0, 500, 0, 0, 1500, window->add_tiers());
  window->set_prefix_lookup_tokens_total(1000 + 200 * seconds);
  window->set_prefix_hit_tokens_total(500 + 150 * seconds);
  window->set_allocated_blocks_total(1234 * seconds);
  window->set_evicted_blocks_total(3 * seconds);
  window->set_pinned_blocks(100);
  window->set_pin_budget_blocks(750);
  v1::TransferStatus* transfers = status.mutable_transfers();
  transfers->set_running(1);
  transfers->set_queued(20);
  v1::TransferDirection* down = transfers->add_directions();
  down->set_source(v1::TIER_PRIMARY);
  down->set_target(v1::TIER_SECONDARY);
  down->set_copies_total(40 * seconds);
  down->set_bytes_total((uint64_t{64} << 20) * seconds);
  return sample;
}

v1::TenantInfo Tenant(const std::string& name, uint32_t used) {
  v1::TenantInfo tenant;
  tenant.set_name(name);
  tenant.set_sessions(2);
  tenant.set_sequences(7);
  v1::TenantUse* use = tenant.add_use();
  use->set_tier(v1::TIER_PRIMARY);
  use->set_used_blocks(used);
  use->set_quota_blocks(1000);
  return tenant;
}

TopState TwoLooks() {
  TopState state("127.0.0.1:7070");
  state.Add(Sample(0));
  TopSample second = Sample(2);
  second.tenants.push_back(Tenant("team-a", 120));
  state.Add(std::move(second));
  return state;
}

Terminal Screen(int columns, int rows) {
  Terminal terminal;
  terminal.interactive = true;
  terminal.columns = columns;
  terminal.rows = rows;
  return terminal;
}

std::vector<std::string> Draw(const TopState& state, const Terminal& terminal) {
  return TopScreen(state, terminal, kStart + absl::Seconds(9));
}

TEST(TopScreenTest, ARoomyScreenShowsEverything) {
  EXPECT_THAT(
      Draw(TwoLooks(), Screen(80, 30)),
      ElementsAre(
          "pagodad 1.2.3 at 127.0.0.1:7070, up 2 h 5 min", "",
          "cache       demo, model tiny, 16 tokens a block, epoch 0000000000000abc", "",
          "window full, hit rate 75.0 % now, 57.1 % since the start",
          "  primary   ######################===========!!!!~...... 85.1 % of 1,000",
          "            500 active, 250 cached, 100 pinned, 1 in flight, 149 free",
          "  secondary ===========................................. 25.0 % of 2,000",
          "            0 active, 500 cached, 0 pinned, 0 in flight, 1,500 free",
          "  a second  1,234 allocated, 3.0 evicted, 0.0 down, 0.0 up, 200 prompt tokens",
          "  pinned    100 of 750 that may be", "",
          "clients     12 sessions, 1,200 sequences, 3 subscribers, 2 pins",
          "events      25 a second, revision 1,050", "",
          "tenants     team-a           2 sessions, 7 sequences, blocks: 120 of 1,000 prima", "",
          "copies      1 running, 20 waiting, 0 failed",
          "            primary to secondary: 64.0 MiB/s, 40 copies a second", "",
          "# active   = cached   ! pinned   ~ in flight   . free   q ends"));
}

TEST(TopScreenTest, WhatMattersLeastGoesFirstWhereThereIsNoRoom) {
  // 15 lines in all, with nothing between the sections.
  EXPECT_THAT(Draw(TwoLooks(), Screen(100, 15)),
              AllOf(SizeIs(15), Contains(HasSubstr("q ends")), Not(Contains(""))));
  EXPECT_THAT(Draw(TwoLooks(), Screen(100, 14)),
              AllOf(SizeIs(14), Not(Contains(HasSubstr("q ends"))), Contains(HasSubstr("cache "))));
  EXPECT_THAT(Draw(TwoLooks(), Screen(100, 13)), Not(Contains(HasSubstr("epoch"))));
  EXPECT_THAT(
      Draw(TwoLooks(), Screen(40, 10)),
      ElementsAre(
          "pagodad 1.2.3 at 127.0.0.1:7070, up 2 h ", "window full, hit rate 75.0 % now, 57.1 %",
          "  primary   ###==!~. 85.1 % of 1,000", "            500 active, 250 cached, 100 ",
          "  secondary ==...... 25.0 % of 2,000", "            0 active, 500 cached, 0 pinn",
          "  a second  1,234 allocated, 3.0 evicted", "  pinned    100 of 750 that may be",
          "clients     12 sessions, 1,200 sequences", "events      25 a second, revision 1,050"));
  EXPECT_THAT(Draw(TwoLooks(), Screen(9, 1)), ElementsAre("pagodad 1"));
}

TEST(TopScreenTest, NoLineIsWiderThanTheScreenAndNoPictureHigher) {
  Terminal terminal = Screen(0, 0);
  terminal.unicode = true;
  for (terminal.rows = 1; terminal.rows < 40; ++terminal.rows) {
    for (terminal.columns = 1; terminal.columns < 130; terminal.columns += 3) {
      const std::vector<std::string> lines = Draw(TwoLooks(), terminal);
      ASSERT_LE(lines.size(), static_cast<size_t>(terminal.rows));
      for (const std::string& line : lines) {
        int characters = 0;
        for (unsigned char c : line) characters += (c & 0xC0) != 0x80 ? 1 : 0;
        ASSERT_LE(characters, terminal.columns) << line;
      }
    }
  }
}

TEST(TopScreenTest, ColoursAndUnicodeAreTheTerminals) {
  Terminal terminal = Screen(80, 30);
  for (const std::string& line : Draw(TwoLooks(), terminal)) {
    for (const unsigned char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << line;
  }
  terminal.unicode = terminal.color = true;
  EXPECT_EQ(Draw(TwoLooks(), terminal)[5],
            "  primary   "
            "\x1b[32m██████████████████████\x1b[0m\x1b[34m▓▓▓▓▓▓▓▓▓▓▓\x1b[0m\x1b[33m▒▒▒▒\x1b[0m"
            "\x1b[36m╱\x1b[0m\x1b[2m░░░░░░\x1b[0m 85.1 % of 1,000");
}

TEST(TopScreenTest, TheFirstLookHasNoRates) {
  TopState state("unix:/run/pagodad.sock");
  EXPECT_THAT(Draw(state, Screen(80, 24)),
              ElementsAre("pagodad at unix:/run/pagodad.sock: no answer yet"));
  state.Add(Sample(0));
  const std::vector<std::string> lines = Draw(state, Screen(80, 30));
  EXPECT_EQ(lines[4], "window full, hit rate - now, 50.0 % since the start");
  EXPECT_THAT(lines, Not(Contains(HasSubstr("a second  "))));
  EXPECT_THAT(lines, Contains("events      - a second, revision 1,000"));
}

TEST(TopScreenTest, ADaemonThatIsAwayOrDrainsIsSaidAtTheTop) {
  TopState state = TwoLooks();
  state.Fail(absl::UnavailableError("no daemon answers at here"), kStart + absl::Seconds(4));
  state.Fail(absl::UnavailableError("no daemon answers at here"), kStart + absl::Seconds(6));
  std::vector<std::string> lines = Draw(state, Screen(100, 30));
  EXPECT_EQ(lines[1], "no answer for 5.00 s, trying again: no daemon answers at here");
  EXPECT_THAT(lines, Contains(HasSubstr("85.1 % of 1,000"))) << "the last picture stays";

  TopSample sample = Sample(9);
  sample.status.set_draining(true);
  sample.status.set_quarantines(1);
  sample.status.set_quarantined_blocks(1400);
  state.Add(std::move(sample));
  lines = Draw(state, Screen(100, 30));
  EXPECT_EQ(lines[0], "pagodad 1.2.3 at 127.0.0.1:7070, up 2 h 5 min, draining");
  EXPECT_EQ(lines[1], "quarantined: 1,400 blocks of 1 ended session");
}

TEST(TopScreenTest, AReportForAFileHasAllLinesAndNoKeys) {
  Terminal file;
  const std::vector<std::string> lines = Draw(TwoLooks(), file);
  EXPECT_EQ(lines.back(), "# active   = cached   ! pinned   ~ in flight   . free   ");
  EXPECT_THAT(lines,
              Contains("tenants     team-a           2 sessions, 7 sequences, blocks: 120 of "
                       "1,000 primary"));
}

TEST(TopScreenTest, TheCommonsAloneAreNoTenants) {
  TopState state("here");
  TopSample sample = Sample(0);
  sample.tenants.push_back(Tenant("", 500));
  state.Add(sample);
  EXPECT_THAT(Draw(state, Screen(80, 30)), Not(Contains(HasSubstr("tenants"))));
  sample.tenants.push_back(Tenant("team-a", 5));
  state.Add(std::move(sample));
  EXPECT_THAT(Draw(state, Screen(80, 30)), Contains(HasSubstr("tenants     (the commons)")));
}

TEST(TopScreenTest, ABarIsAsLongAsAnyOther) {
  // One block of each state in a large tier: each shows, and the bar is no longer for it.
  TopState state("here");
  TopSample sample = Sample(0);
  SetTier(v1::TIER_PRIMARY, 1, 1, 1, 1, 99'996, sample.status.mutable_windows(0)->mutable_tiers(0));
  state.Add(std::move(sample));
  EXPECT_EQ(Draw(state, Screen(56, 30))[5], "  primary   #=!~................ 0.0 % of 100,000");
}

TEST(TopStateTest, RatesAreOfTheTimeBetweenTwoAnswers) {
  const TopState state = TwoLooks();
  ASSERT_TRUE(state.rates().has_value());
  EXPECT_DOUBLE_EQ(state.rates()->events, 25);
  ASSERT_THAT(state.rates()->windows, SizeIs(1));
  EXPECT_DOUBLE_EQ(state.rates()->windows[0].allocated_blocks, 1234);
  EXPECT_DOUBLE_EQ(state.rates()->windows[0].lookup_tokens, 200);
  EXPECT_DOUBLE_EQ(*state.rates()->windows[0].hit_rate, 0.75);
  ASSERT_THAT(state.rates()->directions, SizeIs(1));
  EXPECT_DOUBLE_EQ(state.rates()->directions[0].copies, 40);
  EXPECT_DOUBLE_EQ(state.rates()->directions[0].bytes, 64 << 20);
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

TEST(TopStateTest, AnObjectForPrograms) {
  TopState state = TwoLooks();
  nlohmann::ordered_json json = TopJson(state);
  EXPECT_EQ(json["endpoint"], "127.0.0.1:7070");
  EXPECT_EQ(json["events_per_second"], 25.0);
  EXPECT_EQ(json["windows"][0]["interval_hit_rate"], 0.75);
  EXPECT_EQ(json["windows"][0]["tiers"][0]["active_blocks"], 500);
  EXPECT_EQ(json["tenants"][0]["used_blocks"], 120);
  EXPECT_EQ(json["transfers"]["directions"][0]["copies_per_second"], 40.0);
  state.Fail(absl::UnavailableError("gone"), kStart);
  json = TopJson(state);
  EXPECT_EQ(json["error"], "gone");
  EXPECT_FALSE(json.contains("windows"));
}

}  // namespace
}  // namespace pagoda
