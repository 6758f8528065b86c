// Copies of a block in several tiers, and ladders of more than two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/conformance/conformance.h"

namespace pagoda {
namespace {

using ::testing::SizeIs;

constexpr TierSet kNone;
constexpr TierSet kBelow = TierSet::FromBits(0b10);

class LadderTest : public ConformanceTest {
 protected:
  // Each tier has this many blocks, nearest first.
  void MakeLadder(const std::vector<uint32_t>& blocks) {
    std::vector<TierSpec> tiers;
    for (const uint32_t count : blocks) {
      tiers.push_back({.name = DefaultTierName(Tier(tiers.size())),
                       .blocks = {count},
                       .min_priority = Priority{0}});
    }
    Make({.tiers = std::move(tiers)});
  }
  std::optional<Tier> TierOf(const Tokens& prefix) const {
    const std::optional<TreeEntry> entry = Cached(prefix);
    return entry.has_value() ? std::optional(entry->tier) : std::nullopt;
  }
  void Offload(const Tokens& tokens) { ASSERT_TRUE(Run(OffloadPrefix{.tokens = tokens}).ok()); }
  void Prefetch(const Tokens& tokens) { ASSERT_TRUE(Run(PrefetchPrefix{.tokens = tokens}).ok()); }
};

// --- Copies ---

TEST_F(LadderTest, WhatComesUpLeavesACopyBelow) {
  Make(4, 4, 4);
  Serve(1, Range(0, 3));
  Offload(Range(0, 3));
  TakeEvents();
  EXPECT_EQ(Add(2, Range(0, 4)), 4u);
  const auto updated = TakeOnly<UpdatedEvent>();
  EXPECT_EQ(updated.tier, (Change<Tier>{Tier(1), kPrimaryTier}));
  EXPECT_EQ(updated.lower, (Change<TierSet>{kNone, kBelow}));
  EXPECT_EQ(RequireCached(Range(0, 3)).lower, kBelow);
  EXPECT_EQ(Lower().duplicates, 1u);
  EXPECT_EQ(Lower().cached, 1u) << "a duplicate may go at any time";
}

TEST_F(LadderTest, ABlockWithACopyBelowGoesDownWithoutACopy) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  Offload(Range(0, 7));
  Prefetch(Range(0, 7));
  ASSERT_EQ(Lower().duplicates, 2u);
  const Ticket before = core_->last_ticket();
  TakeEvents();
  Offload(Range(0, 7));
  EXPECT_EQ(core_->last_ticket(), before);
  const auto updated = OfType<UpdatedEvent>(TakeEvents());
  ASSERT_THAT(updated, SizeIs(2));
  for (const UpdatedEvent& update : updated) {
    EXPECT_EQ(update.tier, (Change<Tier>{kPrimaryTier, Tier(1)}));
    EXPECT_EQ(update.lower, (Change<TierSet>{kBelow, kNone}));
  }
  EXPECT_EQ(Lower().duplicates, 0u);
  EXPECT_EQ(core_->Stats().windows[0].counters.freely_evicted_blocks, 2u);
  EXPECT_EQ(Add(3, Range(0, 8)), 8u) << "and the bytes are right";
}

TEST_F(LadderTest, DuplicatesGoBeforeAnythingElse) {
  Make(4, 8, 2);
  Serve(1, Range(0, 3));
  Serve(2, Range(10, 13));
  Serve(3, Range(20, 23));
  Offload(Range(0, 3));
  Offload(Range(10, 13));
  Prefetch(Range(10, 13));  // The younger of the two is the duplicate.
  ASSERT_EQ(Lower().duplicates, 1u);
  TakeEvents();
  Offload(Range(20, 23));
  const auto updated = OfType<UpdatedEvent>(TakeEvents());
  ASSERT_THAT(updated, SizeIs(2));
  EXPECT_EQ(updated[0].id, RequireCached(Range(10, 13)).id);
  EXPECT_EQ(updated[0].tier, std::nullopt);
  EXPECT_EQ(updated[0].lower, (Change<TierSet>{kBelow, kNone}));
  EXPECT_EQ(TierOf(Range(0, 3)), Tier(1));
  EXPECT_EQ(TierOf(Range(10, 13)), kPrimaryTier);
  EXPECT_EQ(TierOf(Range(20, 23)), Tier(1));
}

TEST_F(LadderTest, OfABlockThatLeavesAllCopiesGo) {
  Make(4, 4, 4);
  Serve(1, Range(0, 7));
  Offload(Range(0, 7));
  Prefetch(Range(0, 7));
  ASSERT_EQ(Lower().duplicates, 2u);
  TakeEvents();
  ASSERT_TRUE(Run(InvalidatePrefix{.tokens = Range(0, 3)}).ok());
  EXPECT_THAT(TakeOnly<RemovedEvent>().blocks, SizeIs(2));
  EXPECT_EQ(Lower().free, 4u);
  EXPECT_EQ(Primary().free, 4u);
}

// Nothing is lost while one copy remains.
TEST_F(LadderTest, WhatFailsToComeUpIsCachedBelow) {
  Make(4, 4, 4);
  Serve(1, Range(0, 3));
  Offload(Range(0, 3));
  copies_ = Copies::kByHand;
  Prefetch(Range(0, 3));
  ASSERT_THAT(pending(), SizeIs(1));
  TakeEvents();
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  const auto updated = TakeOnly<UpdatedEvent>();
  EXPECT_EQ(updated.tier, (Change<Tier>{kPrimaryTier, Tier(1)}));
  EXPECT_EQ(updated.lower, (Change<TierSet>{kBelow, kNone}));
  copies_ = Copies::kAtOnce;
  EXPECT_EQ(Add(2, Range(0, 4)), 4u);
}

TEST_F(LadderTest, ADuplicateWhoseBytesDidNotArriveIsNone) {
  Make(4, 4, 4);
  Serve(1, Range(0, 3));
  copies_ = Copies::kByHand;
  Offload(Range(0, 3));
  Prefetch(Range(0, 3));
  ASSERT_THAT(pending(), SizeIs(2));
  TakeEvents();
  Complete(pending().begin()->first, absl::DataLossError("planted"));
  EXPECT_EQ(TakeOnly<UpdatedEvent>().lower, (Change<TierSet>{kBelow, kNone}));
  EXPECT_EQ(Lower().duplicates, 0u);
  Complete(pending().begin()->first);
  EXPECT_EQ(TakeOnly<RemovedEvent>().reason, RemovalReason::kLost) << "it was read from there";
  EXPECT_EQ(Primary().free, 4u);
}

// --- Ladders ---

TEST_F(LadderTest, AVictimFallsOneTierAndWhatItDisplacesTheNext) {
  MakeLadder({1, 1, 1, 1});
  Serve(1, Range(0, 3));
  Serve(2, Range(10, 13));
  Serve(3, Range(20, 23));
  Serve(4, Range(30, 33));
  EXPECT_EQ(TierOf(Range(0, 3)), Tier{3});
  EXPECT_EQ(TierOf(Range(10, 13)), Tier{2});
  EXPECT_EQ(TierOf(Range(20, 23)), Tier(1));
  EXPECT_EQ(TierOf(Range(30, 33)), kPrimaryTier);
  TakeEvents();
  Serve(5, Range(40, 43));
  const auto removed = OfType<RemovedEvent>(TakeEvents());
  ASSERT_THAT(removed, SizeIs(1));
  EXPECT_EQ(removed[0].reason, RemovalReason::kDisplaced);
  EXPECT_EQ(TierOf(Range(0, 3)), std::nullopt);
  EXPECT_EQ(TierOf(Range(10, 13)), Tier{3});
}

TEST_F(LadderTest, AVictimFallsPastATierThatDoesNotTakeIt) {
  std::vector<TierSpec> tiers = {{.name = "a", .blocks = {1}},
                                 {.name = "b", .blocks = {1}, .min_priority = Priority{60}},
                                 {.name = "c", .blocks = {1}, .min_priority = Priority{0}}};
  Make({.tiers = std::move(tiers)});
  Serve(1, Range(0, 3));
  Serve(2, Range(10, 13));
  EXPECT_EQ(TierOf(Range(0, 3)), Tier{2});
  EXPECT_EQ(Lower().free, 1u);
}

TEST_F(LadderTest, APathFallsWithItsEndFirst) {
  MakeLadder({2, 1, 2});
  Serve(1, Range(0, 7));
  Serve(2, Range(100, 107));
  EXPECT_EQ(TierOf(Range(0, 7)), Tier{2});
  EXPECT_EQ(TierOf(Range(0, 3)), Tier(1));
  Serve(3, Range(200, 207));
  EXPECT_EQ(TierOf(Range(0, 7)), std::nullopt);
  EXPECT_EQ(TierOf(Range(0, 3)), Tier{2});
  EXPECT_EQ(TierOf(Range(100, 107)), Tier{2});
  EXPECT_EQ(TierOf(Range(100, 103)), Tier(1));
}

TEST_F(LadderTest, WhatComesUpFromTheFarthestTierSwapsWithAllAboveIt) {
  MakeLadder({2, 2, 2, 2});
  for (uint32_t i = 0; i < 4; ++i) Serve(i + 1, Range(100 * i, 100 * i + 7));
  ASSERT_EQ(TierOf(Range(0, 7)), Tier{3});
  Prefetch(Range(0, 7));
  EXPECT_EQ(TierOf(Range(0, 7)), kPrimaryTier);
  EXPECT_EQ(TierOf(Range(100, 107)), Tier{3});
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Match(Range(100 * i, 100 * i + 8)), 8u) << "nothing is lost";
  }
}

}  // namespace
}  // namespace pagoda
