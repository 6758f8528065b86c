// The totals of event streams' messages, compared with the messages' content.
#include "clients/pagodactl/top/stream_tally.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pagoda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

v1::WatchResponse Message(uint64_t previous, uint64_t revision, const std::string& text = "") {
  v1::WatchResponse message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  message.set_epoch(7);
  message.set_previous_revision(previous);
  message.set_revision(revision);
  return message;
}

std::string Stored(uint64_t revision, uint32_t id, const std::string& tier = "TIER_PRIMARY",
                   uint32_t window = 0) {
  return absl::StrCat("events { revision: ", revision, " window_size: ", window,
                      " stored { blocks { block_id: ", id, " tier: ", tier, " } } } ");
}

std::string Moved(uint64_t revision, uint32_t id, const std::string& from, const std::string& to) {
  return absl::StrCat("events { revision: ", revision, " updated { block_id: ", id,
                      " tier { old_value: ", from, " new_value: ", to, " } } } ");
}

std::string Removed(uint64_t revision, uint32_t id, const std::string& reason) {
  return absl::StrCat("events { revision: ", revision, " removed { reason: REMOVAL_REASON_", reason,
                      " block_ids: ", id, " block_hashes: 1 } } ");
}

// A stream whose snapshot, as of revision 20, has block 1 in the primary tier and 2 in the tier
// below.
StreamTally Joined() {
  StreamTally tally;
  tally.BeginStream();
  EXPECT_TRUE(tally.Apply(Message(0, 10, "snapshot_begin: true")).ok());
  EXPECT_TRUE(tally.Apply(Message(10, 20, Stored(0, 1) + Stored(0, 2, "TIER_SECOND"))).ok());
  EXPECT_TRUE(tally.Apply(Message(20, 20, "snapshot_end: true")).ok());
  return tally;
}

TEST(StreamTallyTest, ASnapshotIsWhatThereIsAndCountsForNothing) {
  const StreamTally tally = Joined();
  const StreamFigures& figures = tally.figures();
  EXPECT_TRUE(figures.whole);
  EXPECT_EQ(figures.epoch, 7u);
  EXPECT_EQ(figures.snapshot_revision, 20u);
  EXPECT_EQ(figures.snapshots, 1u);
  EXPECT_EQ(figures.events.all(), 0u);
  EXPECT_THAT(figures.recent, IsEmpty());
  ASSERT_THAT(figures.windows, SizeIs(1));
  const WindowFigures& window = figures.windows.at(0);
  EXPECT_EQ(window.stored, 0u);
  EXPECT_THAT(window.reusable,
              UnorderedElementsAre(Pair(v1::TIER_PRIMARY, 1), Pair(v1::TIER_SECOND, 1)));
}

TEST(StreamTallyTest, WhatHappensMeanwhileIsAPartOfTheSnapshot) {
  StreamTally tally;
  tally.BeginStream();
  ASSERT_TRUE(tally.Apply(Message(0, 10, "snapshot_begin: true")).ok());
  ASSERT_TRUE(tally.Apply(Message(10, 20, Stored(0, 1) + Stored(0, 2))).ok());
  EXPECT_FALSE(tally.figures().whole);
  EXPECT_EQ(tally.figures().windows.at(0).stored, 2u) << "told so far";
  ASSERT_TRUE(
      tally
          .Apply(Message(20, 30,
                         Removed(25, 1, "EVICTED") + Moved(26, 2, "TIER_PRIMARY", "TIER_SECOND") +
                             Stored(0, 3) + "snapshot_end: true"))
          .ok());
  EXPECT_THAT(tally.figures().windows.at(0).reusable,
              UnorderedElementsAre(Pair(v1::TIER_PRIMARY, 1), Pair(v1::TIER_SECOND, 1)));
  EXPECT_EQ(tally.figures().snapshot_revision, 30u);
  EXPECT_THAT(tally.figures().windows.at(0).removed, IsEmpty());
  EXPECT_EQ(tally.figures().events.all(), 0u);
}

TEST(StreamTallyTest, WhatHappensIsCountedByTypeTierAndReason) {
  StreamTally tally = Joined();
  ASSERT_TRUE(
      tally
          .Apply(Message(20, 28,
                         Stored(21, 3) + Moved(22, 1, "TIER_PRIMARY", "TIER_SECOND") +
                             Moved(23, 2, "TIER_SECOND", "TIER_PRIMARY") +
                             "events { revision: 24 updated { block_id: 3 priority { old_value: 35 "
                             "new_value: 9 } } } events { revision: 25 created { block_ids: 8 "
                             "block_ids: 9 } } " +
                             Removed(26, 8, "RELEASED") + Removed(27, 1, "DISPLACED") +
                             Stored(28, 3, "TIER_PRIMARY", 128)))
          .ok());
  const StreamFigures& figures = tally.figures();
  EXPECT_EQ(figures.revision, 28u);
  EXPECT_EQ(figures.events.created, 1u);
  EXPECT_EQ(figures.events.stored, 2u);
  EXPECT_EQ(figures.events.updated, 3u);
  EXPECT_EQ(figures.events.removed, 2u);
  const WindowFigures& full = figures.windows.at(0);
  EXPECT_EQ(full.stored, 1u);
  EXPECT_EQ(full.offloaded, 1u);
  EXPECT_EQ(full.onboarded, 1u);
  EXPECT_EQ(full.reprioritized, 1u);
  EXPECT_EQ(full.handed_out, 2u);
  EXPECT_THAT(full.removed, UnorderedElementsAre(Pair(v1::REMOVAL_REASON_RELEASED, 1),
                                                 Pair(v1::REMOVAL_REASON_DISPLACED, 1)));
  EXPECT_THAT(full.reusable,
              UnorderedElementsAre(Pair(v1::TIER_PRIMARY, 2), Pair(v1::TIER_SECOND, 0)));
  EXPECT_THAT(figures.windows.at(128).reusable, ElementsAre(Pair(v1::TIER_PRIMARY, 1)))
      << "block ids are a window's own";
}

TEST(StreamTallyTest, AWholeWindowGoesAtOnce) {
  StreamTally tally = Joined();
  const std::string clear =
      "events { revision: 21 removed { reason: REMOVAL_REASON_CLEARED "
      "scope: REMOVAL_SCOPE_WINDOW } } ";
  ASSERT_TRUE(tally.Apply(Message(20, 22, clear + Stored(22, 1))).ok());
  const WindowFigures& window = tally.figures().windows.at(0);
  EXPECT_THAT(window.removed, ElementsAre(Pair(v1::REMOVAL_REASON_CLEARED, 2)));
  EXPECT_THAT(window.reusable, ElementsAre(Pair(v1::TIER_PRIMARY, 1)));
}

TEST(StreamTallyTest, WithThePoolsEverythingGoesUncounted) {
  StreamTally tally = Joined();
  const std::string gone =
      "events { revision: 21 removed { reason: REMOVAL_REASON_RELEASED "
      "scope: REMOVAL_SCOPE_POOLS } } ";
  ASSERT_TRUE(tally.Apply(Message(20, 21, gone)).ok());
  EXPECT_EQ(tally.figures().events.removed, 1u);
  EXPECT_THAT(tally.figures().windows.at(0).removed, IsEmpty());
  EXPECT_THAT(tally.figures().windows.at(0).reusable, IsEmpty());
}

TEST(StreamTallyTest, TheLastEventsAreKeptInOrder) {
  StreamTally tally = Joined();
  std::string events;
  const uint64_t last = 20 + 3 * StreamTally::kRecentEvents;
  for (uint64_t revision = 21; revision <= last - 1; ++revision) {
    events += Stored(revision, static_cast<uint32_t>(revision));
  }
  ASSERT_TRUE(tally.Apply(Message(20, last - 1, events)).ok());
  ASSERT_TRUE(tally.Apply(Message(last - 1, last, Removed(last, 1, "EVICTED"))).ok());
  const auto& recent = tally.figures().recent;
  ASSERT_THAT(recent, SizeIs(StreamTally::kRecentEvents));
  for (size_t i = 0; i < recent.size(); ++i) {
    EXPECT_EQ(recent[i].revision, last + 1 - recent.size() + i);
  }
  EXPECT_EQ(recent.back().detail, "evicted: block 1");
}

TEST(StreamTallyTest, ANewSnapshotForgetsEverythingButHowManyThereWere) {
  for (const bool same_stream : {true, false}) {
    StreamTally tally = Joined();
    ASSERT_TRUE(tally.Apply(Message(20, 21, Stored(21, 3))).ok());
    if (!same_stream) tally.BeginStream();
    ASSERT_TRUE(tally.Apply(Message(0, 90, "snapshot_begin: true")).ok());
    EXPECT_FALSE(tally.figures().whole);
    EXPECT_EQ(tally.figures().snapshots, 1u);
    ASSERT_TRUE(tally.Apply(Message(90, 90, Stored(0, 1) + "snapshot_end: true")).ok());
    EXPECT_EQ(tally.figures().snapshots, 2u);
    EXPECT_EQ(tally.figures().snapshot_revision, 90u);
    EXPECT_EQ(tally.figures().events.all(), 0u);
    EXPECT_THAT(tally.figures().recent, IsEmpty());
    EXPECT_THAT(tally.figures().windows.at(0).reusable, ElementsAre(Pair(v1::TIER_PRIMARY, 1)));
  }
}

TEST(StreamTallyTest, AStreamThatEndedIsNotWholeUntilTheNextSnapshot) {
  StreamTally tally = Joined();
  tally.BeginStream();
  EXPECT_FALSE(tally.figures().whole);
  EXPECT_FALSE(tally.Apply(Message(20, 21, Stored(21, 3))).ok()) << "no snapshot";
}

TEST(StreamTallyTest, WhatDoesNotFitIsAnError) {
  const struct {
    std::string events;
    const char* error;
  } cases[] = {{Stored(21, 1), "block 1 is stored twice"},
               {Removed(21, 9, "EVICTED"), "block 9 is removed but not cached"},
               {Moved(21, 9, "TIER_PRIMARY", "TIER_SECOND"), "block 9 is updated but not"},
               {Moved(21, 2, "TIER_PRIMARY", "TIER_SECOND"), "block 2 is moved from a tier"},
               {"events { revision: 21 }", "older than the daemon"}};
  for (const auto& bad : cases) {
    StreamTally tally = Joined();
    const absl::Status status = tally.Apply(Message(20, 21, bad.events));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.error));
  }
  StreamTally tally = Joined();
  EXPECT_THAT(std::string(tally.Apply(Message(21, 22, Stored(22, 5))).message()),
              HasSubstr("a gap"));
}

// Random events about the blocks of a small cache, compared with a list of the blocks.
TEST(StreamTallyTest, RandomEventsComeToWhatANaiveListSays) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](uint32_t bound) { return random() % bound; };
    StreamTally tally = Joined();
    std::map<uint32_t, bool> primary = {{1, true}, {2, false}};  // By block.
    uint64_t revision = 20, moves[2] = {}, stored = 0, removed = 0;
    for (int round = 0; round < 60; ++round) {
      const uint64_t before = revision;
      std::string events;
      for (uint32_t count = below(4); count > 0; --count) {
        const uint32_t id = below(12);
        const auto found = primary.find(id);
        ++revision;
        if (found == primary.end()) {
          primary[id] = below(2) == 0;
          events += Stored(revision, id, primary[id] ? "TIER_PRIMARY" : "TIER_SECOND");
          ++stored;
        } else if (below(2) == 0) {
          events += found->second ? Moved(revision, id, "TIER_PRIMARY", "TIER_SECOND")
                                  : Moved(revision, id, "TIER_SECOND", "TIER_PRIMARY");
          ++moves[found->second ? 0 : 1];
          found->second = !found->second;
        } else {
          events += Removed(revision, id, "EVICTED");
          primary.erase(found);
          ++removed;
        }
      }
      ASSERT_TRUE(tally.Apply(Message(before, revision, events)).ok()) << "seed " << seed;
      uint64_t in_primary = 0;
      for (const auto& [id, is_primary] : primary) in_primary += is_primary ? 1 : 0;
      WindowFigures window = tally.figures().windows.at(0);
      ASSERT_EQ(window.reusable[v1::TIER_PRIMARY], in_primary) << "seed " << seed;
      ASSERT_EQ(window.reusable[v1::TIER_SECOND], primary.size() - in_primary);
      ASSERT_EQ(window.stored, stored);
      ASSERT_EQ(window.offloaded, moves[0]);
      ASSERT_EQ(window.onboarded, moves[1]);
      ASSERT_EQ(window.removed[v1::REMOVAL_REASON_EVICTED], removed);
      ASSERT_EQ(tally.figures().events.all(), revision - 20);
    }
  }
}

}  // namespace
}  // namespace pagoda
