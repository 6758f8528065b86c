// The screen of `top` at several sizes, line by line.
#include "clients/pagodactl/top/top_screen.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "clients/command_line/terminal/printable_output.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/pagodactl/top/top_samples.h"

namespace pagoda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

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

// The beginning of a line of the latest events.
std::string Clock(absl::Time time) {
  return absl::FormatTime("%H:%M:%E3S ", time, absl::LocalTimeZone());
}

TEST(TopScreenTest, TheEngineIsShownIfThereIsOne) {
  EXPECT_THAT(Draw(TwoLooks(), Screen(120, 60)), Not(Contains(StartsWith("engine"))));
  TopSample sample = Sample(0);
  v1::EngineStatus& engine = *sample.status.mutable_engine();
  engine.set_model("tiny");
  engine.set_running_requests(2);
  engine.set_up(true);
  engine.mutable_addresses()->add_grpc("127.0.0.1:7074");
  TopState state("here");
  state.Add(sample);
  EXPECT_THAT(Draw(state, Screen(120, 60)),
              AllOf(Contains("engine      tiny, 2 running, 0 waiting requests, up"),
                    Contains("            gRPC at 127.0.0.1:7074")));
  engine.set_up(false);
  engine.set_restarts(4);
  engine.set_problem("signal 9\nended it");
  engine.clear_addresses();
  TopState down("here");
  down.Add(std::move(sample));
  EXPECT_THAT(Draw(down, Screen(120, 60)),
              AllOf(Contains(AllOf(StartsWith("engine      tiny, 2 running, 0 waiting requests, "),
                                   HasSubstr("not up, restarted 4 times: signal 9\\nended it"))),
                    Not(Contains(HasSubstr("gRPC at")))));
}

TEST(TopScreenTest, TheStoreAndOtherDaemonsAreShownIfThereAreAny) {
  EXPECT_THAT(Draw(TwoLooks(), Screen(120, 60)), Not(Contains(StartsWith("store"))));
  TopSample sample = Sample(0);
  v1::StoreStatus& store = *sample.status.mutable_store();
  store.add_servers("redis-1:6379");
  store.add_servers("redis-2:6379");
  store.set_up(true);
  store.set_nodes(3);
  store.set_connections(6);
  v1::NamedCount& refused = *store.add_puts_total();
  refused.set_name("timed_out");
  refused.set_count(2000);
  v1::PeerSourceStatus& source = *sample.status.add_peer_sources();
  source.set_address("10.0.0.1:7072");
  source.mutable_connection()->set_last_error("connect: refused");
  v1::ExchangeStatus& exchange = *sample.status.mutable_exchange();
  exchange.set_fetched_tokens_total(1);
  exchange.set_fetched_bytes_total(uint64_t{3} << 20);
  exchange.set_fetch_bytes_per_second(1 << 20);
  exchange.set_invalid_blocks_total(1);
  exchange.mutable_publisher()->set_store_away(true);
  TopState state("127.0.0.1:7070");
  state.Add(sample);
  const std::vector<std::string> lines = Draw(state, Screen(120, 60));
  for (const char* line :
       {"store       redis-1:6379, redis-2:6379: up, 6 connections to 3 servers",
        "            reads: none; writes: timed out 2,000",
        "source      10.0.0.1:7072: away; last error: connect: refused; reads: none, 0 B",
        "fetches     none; 1 token, 3.0 MiB at 1.0 MiB/s; 1 invalid value",
        "publishes   0 blocks, 0 B; 0 of 0 listed prefixes, 0 waiting, 0 in flight; waits, because "
        "the store is away"}) {
    EXPECT_THAT(lines, Contains(line));
  }
  exchange.set_unavailable("a window slides");
  state.Add(sample);
  EXPECT_THAT(Draw(state, Screen(120, 60)), Contains("exchange    none: a window slides"));
}

TEST(TopScreenTest, ALargeScreenShowsEverything) {
  EXPECT_THAT(
      Draw(TwoLooks(), Screen(80, 32)),
      ElementsAre(
          "pagodad 1.2.3 at 127.0.0.1:7070, up 2 h 5 min", "",
          "cache       demo, model tiny, 16 tokens per block, epoch 0000000000000abc", "",
          "window full, hit rate 75.0 % now, 57.1 % since the start",
          "  primary   ######################===========!!!!~...... 85.1 % of 1,000",
          "            500 active, 250 cached, 100 pinned, 1 in flight, 149 free",
          "  secondary ===========................................. 25.0 % of 2,000",
          "            0 active, 500 cached, 0 pinned, 0 in flight, 1,500 free",
          "  reusable  612 primary, 1,500 secondary",
          "  changes/s 90 stored, 40 offloaded, 1.0 onboarded, 3.0 evicted",
          "  allocated 1,234 per second, for 200 prompt tokens looked up",
          "  pinned    100 of 750 allowed", "",
          "clients     12 sessions, 1,200 sequences, 3 subscribers, 2 pins",
          "events      25 per second: 18 stored, 5.0 updated, 2.0 removed, 0.0 created",
          "stream      at revision 1,050, up to date, last message 120.00 ms ago", "",
          "tenants     team-a           2 sessions, 7 sequences, blocks: 120 of 1,000 prima", "",
          "copies      1 running, 20 waiting, 0 failed",
          "            primary to secondary: 64.0 MiB/s, 40 copies per second", "",
          absl::StrCat("latest      ", Clock(kStart), "updated block 5, tier primary -> secondary"),
          absl::StrCat("            ", Clock(kStart), "stored  block 1 after 2"), "",
          "# active   = cached   ! pinned   ~ in flight   . free   q quits, space pauses"));
}

TEST(TopScreenTest, TheLeastImportantIsLeftOutFirst) {
  // 20 lines in all, with nothing between the sections.
  EXPECT_THAT(Draw(TwoLooks(), Screen(100, 20)),
              AllOf(SizeIs(20), Contains(HasSubstr("q quits")), Not(Contains(""))));
  EXPECT_THAT(
      Draw(TwoLooks(), Screen(100, 19)),
      AllOf(SizeIs(19), Not(Contains(HasSubstr("q quits"))), Contains(HasSubstr("cache "))));
  EXPECT_THAT(Draw(TwoLooks(), Screen(100, 18)),
              AllOf(Not(Contains(HasSubstr("epoch"))), Contains(HasSubstr("latest")), SizeIs(18)));
  EXPECT_THAT(
      Draw(TwoLooks(), Screen(40, 13)),
      ElementsAre(
          "pagodad 1.2.3 at 127.0.0.1:7070, up 2 h ", "window full, hit rate 75.0 % now, 57.1 %",
          "  primary   ###==!~. 85.1 % of 1,000", "            500 active, 250 cached, 100 ",
          "  secondary ==...... 25.0 % of 2,000", "            0 active, 500 cached, 0 pinn",
          "  reusable  612 primary, 1,500 secondary", "  changes/s 90 stored, 40 offloaded, 1.0",
          "  allocated 1,234 per second, for 200 pr", "  pinned    100 of 750 allowed",
          "clients     12 sessions, 1,200 sequences", "events      25 per second: 18 stored, 5.",
          "stream      at revision 1,050, up to dat"));
  EXPECT_THAT(Draw(TwoLooks(), Screen(9, 1)), ElementsAre("pagodad 1"));
}

TEST(TopScreenTest, TheOldestOfTheLatestEventsGoBeforeAnythingElse) {
  TopState state("here");
  TopSample sample = Sample(0);
  for (uint64_t revision = 1; revision <= 20; ++revision) {
    sample.stream.figures.recent.push_back(StoredSummary(revision, kStart));
    sample.stream.figures.recent.back().detail = absl::StrCat("event ", revision);
  }
  state.Add(std::move(sample));
  const auto events = [&state](int rows) {
    int count = 0;
    for (const std::string& line : Draw(state, Screen(80, rows))) {
      count += line.find("stored  event ") != std::string::npos ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(events(60), 8);
  const size_t all = Draw(state, Screen(80, 60)).size();
  EXPECT_EQ(events(static_cast<int>(all) - 6), 8) << "the empty lines go first";
  int rows = static_cast<int>(all);
  while (events(rows) == 8) --rows;
  EXPECT_EQ(events(rows), 7);
  EXPECT_THAT(Draw(state, Screen(80, rows - 4)),
              AllOf(Contains(HasSubstr("q quits")), Contains(HasSubstr("event 20")),
                    Contains(HasSubstr("event 18")), Not(Contains(HasSubstr("event 17")))));
  EXPECT_THAT(Draw(state, Screen(80, rows - 5)),
              AllOf(Not(Contains(HasSubstr("q quits"))), Contains(HasSubstr("event 18"))));
}

TEST(TopScreenTest, AStreamThatIsBehindAwayOrBegunAnewIsSaid) {
  const auto stream_lines = [](const StreamLook& look) {
    TopState state("here");
    TopSample sample = Sample(2);
    sample.stream = look;
    state.Add(std::move(sample));
    std::vector<std::string> lines = Draw(state, Screen(100, 40));
    const auto begin = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
      return line.starts_with("stream ");
    });
    return std::vector<std::string>(begin, std::find(begin, lines.end(), ""));
  };
  StreamLook look = LiveStream(2);
  look.figures.revision -= 12;
  EXPECT_THAT(
      stream_lines(look),
      ElementsAre("stream      at revision 1,038, 12 events behind, last message 120.00 ms ago"));
  look.figures.epoch = 0xDEF;
  EXPECT_THAT(stream_lines(look),
              ElementsAre(HasSubstr("1,038, from another incarnation than the answer, last")));

  look = LiveStream(2);
  look.interruption = absl::UnavailableError("the daemon ended the stream");
  look.figures.snapshots = 2;
  look.phase_since = kStart + absl::Seconds(5);
  EXPECT_THAT(stream_lines(look),
              ElementsAre(HasSubstr("up to date"),
                          "            restarted 4.00 s ago, with snapshot 2: the daemon ended the "
                          "stream"));
  look.phase = StreamLook::Phase::kSnapshot;
  look.figures.windows[0].stored = 12'345;
  EXPECT_THAT(
      stream_lines(look),
      ElementsAre(
          "stream      reading a snapshot, 12,345 blocks so far",
          "            restarted 4.00 s ago, with snapshot 3: the daemon ended the stream"));
  look.phase = StreamLook::Phase::kDown;
  EXPECT_THAT(stream_lines(look),
              ElementsAre("stream      none for 4.00 s, retrying: the daemon ended the stream"));
  EXPECT_THAT(stream_lines(StreamLook()), ElementsAre("stream      none yet"));
}

TEST(TopScreenTest, AStreamThatLagsIsToldFromOneThatIsReadAsItComes) {
  TopState state = TwoLooks();  // The second answer is at revision 1,050.
  TopSample third = Sample(3);
  third.stream.figures.revision = 1051;
  state.Add(third);
  EXPECT_FALSE(state.stream_lags());
  EXPECT_THAT(Draw(state, Screen(80, 40)), Contains(HasSubstr("24 events behind, last message")));
  TopSample fourth = Sample(4);
  fourth.stream.figures.revision = 1074;
  state.Add(fourth);
  EXPECT_TRUE(state.stream_lags());
  EXPECT_THAT(Draw(state, Screen(100, 40)),
              Contains(HasSubstr("26 events and more than an interval behind, last message")));
}

TEST(TopScreenTest, WithoutALiveStreamNothingIsSaidInItsName) {
  TopState state("here");
  TopSample sample = Sample(0);
  sample.stream.phase = StreamLook::Phase::kDown;
  state.Add(std::move(sample));
  const std::vector<std::string> lines = Draw(state, Screen(80, 40));
  EXPECT_THAT(lines, AllOf(Not(Contains(HasSubstr("reusable"))), Not(Contains(HasSubstr("latest"))),
                           Contains("events      - per second")));
}

TEST(TopScreenTest, RemovalsAreToldByTheirReasons) {
  TopState state("here");
  state.Add(Sample(0));
  TopSample second = Sample(1);
  second.stream.figures.windows[0].removed[v1::REMOVAL_REASON_TAKEN_OVER] = 40;
  second.stream.figures.windows[128] = {.stored = 7};
  second.stream.figures.recent.back().window_size = 128;
  state.Add(std::move(second));
  const std::vector<std::string> lines = Draw(state, Screen(100, 40));
  EXPECT_THAT(
      lines,
      Contains("  changes/s 90 stored, 40 offloaded, 1.0 onboarded, 3.0 evicted, 40 taken over"));
  EXPECT_THAT(lines, Contains(HasSubstr("updated 128    block 5"))) << "which window, of several";
}

TEST(TopScreenTest, AHeldPictureSaysSo) {
  EXPECT_EQ(TopScreen(TwoLooks(), Screen(100, 40), kStart, TopPicture::kHeld)[1],
            "paused; space continues");
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
  EXPECT_EQ(ForTerminal(Draw(TwoLooks(), terminal)[5]),
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
  EXPECT_THAT(lines, Not(Contains(HasSubstr("  changes/s "))));
  EXPECT_THAT(lines, Contains("events      - per second"));
  EXPECT_THAT(lines, Contains("  reusable  612 primary, 1,500 secondary"));
}

TEST(TopScreenTest, ADaemonThatIsAwayOrDrainsIsSaidAtTheTop) {
  TopState state = TwoLooks();
  state.Fail(absl::UnavailableError("no daemon answers at here"), kStart + absl::Seconds(4));
  state.Fail(absl::UnavailableError("no daemon answers at here"), kStart + absl::Seconds(6));
  std::vector<std::string> lines = Draw(state, Screen(100, 30));
  EXPECT_EQ(lines[1], "no answer for 5.00 s, retrying: no daemon answers at here");
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

TEST(TopScreenTest, TheDefaultTenantAloneIsNoListOfTenants) {
  TopState state("here");
  TopSample sample = Sample(0);
  sample.tenants.push_back(Tenant("", 500));
  state.Add(sample);
  EXPECT_THAT(Draw(state, Screen(80, 30)), Not(Contains(HasSubstr("tenants"))));
  sample.tenants.push_back(Tenant("team-a", 5));
  state.Add(std::move(sample));
  EXPECT_THAT(Draw(state, Screen(80, 30)), Contains(HasSubstr("tenants     (default tenant)")));
}

TEST(TopScreenTest, ABarIsAsLongAsAnyOther) {
  // One block of each state in a large tier: each is visible, and the bar does not get longer.
  TopState state("here");
  TopSample sample = Sample(0);
  SetTier(v1::TIER_PRIMARY, 1, 1, 1, 1, 99'996, sample.status.mutable_windows(0)->mutable_tiers(0));
  state.Add(std::move(sample));
  EXPECT_EQ(Draw(state, Screen(56, 30))[5], "  primary   #=!~................ 0.0 % of 100,000");
}

}  // namespace
}  // namespace pagoda
