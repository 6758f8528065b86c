#include "engine/schedule/prefix_fetches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"

namespace pagoda {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Name = PrefixFetches::Name;

constexpr uint32_t kBlockTokens = 8;
constexpr Name kOne = {1, 0}, kTwo = {2, 0};
const SteadyTime kStart = SteadyTime() + std::chrono::hours(1);

CacheInfo Info(Medium last) {
  CacheInfo info;
  info.tokens_per_block = kBlockTokens;
  info.tiers = {{.name = "primary"}, {.name = "last", .medium = last}};
  return info;
}

// All tokens in memory match; the rest is on disk.
CachedPrefix Cached(uint32_t matched, uint32_t cached) {
  return {.matched_tokens = matched, .cached_tokens = cached, .disk_tokens = cached - matched};
}
CachedPrefix Cached(uint32_t matched) { return Cached(matched, std::max(matched, 1000u)); }

OperationResult FetchOrdered(uint64_t ticket, uint32_t blocks) {
  return PrefetchedPrefix{.fetched_blocks = blocks, .fetch = Ticket(ticket)};
}

class PrefixFetchesTest : public testing::Test {
 protected:
  // The sample, which matches `matched` of `cached` tokens, waits for a fetch with this ticket.
  void Begin(Name sample, uint32_t matched, uint32_t cached, uint64_t ticket, SteadyTime now,
             uint32_t blocks = 4) {
    ASSERT_TRUE(fetches_.Decide(sample, Cached(matched, cached), now).has_value());
    EXPECT_TRUE(fetches_.IsFetching(sample)) << "before its batch has run";
    fetches_.Ordered(sample, FetchOrdered(ticket, blocks), now);
    EXPECT_TRUE(fetches_.IsFetching(sample));
  }

  PrefixFetches fetches_{Info(Medium::kDisk)};
};

TEST_F(PrefixFetchesTest, AsksOnlyWhereTheLastTierIsADisk) {
  EXPECT_TRUE(fetches_.WantsMatch(kOne));
  fetches_.Attach(Info(Medium::kHost));
  EXPECT_FALSE(fetches_.WantsMatch(kOne));
  EXPECT_FALSE(fetches_.Decide(kOne, Cached(0, 100), kStart).has_value());
  fetches_.Attach(CacheInfo());
  EXPECT_FALSE(fetches_.WantsMatch(kOne));
}

TEST_F(PrefixFetchesTest, LessThanABlockIsNotFetched) {
  EXPECT_FALSE(fetches_.Decide(kOne, Cached(40, 47), kStart).has_value());
  EXPECT_FALSE(fetches_.Decide(kOne, Cached(40, 40), kStart).has_value());
  EXPECT_TRUE(fetches_.WantsMatch(kOne)) << "it may yet leave the memory";
  EXPECT_EQ(fetches_.counts().fetches_not_worth, 0u);
  EXPECT_TRUE(fetches_.Decide(kOne, Cached(40, 48), kStart).has_value());
}

TEST_F(PrefixFetchesTest, ItEndsWithItsTicket) {
  Begin(kOne, 8, 40, 4, kStart);
  Begin(kTwo, 0, 80, 9, kStart);
  fetches_.Heed(Ticket(3), kStart + milliseconds(1));
  EXPECT_TRUE(fetches_.IsFetching(kOne));
  fetches_.Heed(Ticket(4), kStart + milliseconds(2));
  EXPECT_FALSE(fetches_.IsFetching(kOne));
  EXPECT_TRUE(fetches_.IsFetching(kTwo));
  EXPECT_TRUE(fetches_.any_fetching());
  fetches_.Probed(kOne, Cached(40), kStart + milliseconds(3));
  EXPECT_FALSE(fetches_.Decide(kOne, Cached(40, 40), kStart).has_value());
  EXPECT_EQ(fetches_.Leave(kOne), 32u);
  EXPECT_EQ(fetches_.Leave(kOne), 0u);
  EXPECT_EQ(fetches_.Leave(kTwo), 0u);
  EXPECT_FALSE(fetches_.any_fetching());
  EXPECT_EQ(fetches_.counts().fetches, 2u);
  EXPECT_EQ(fetches_.counts().late_fetches, 0u);
}

// The cache limits the size of a fetch.
TEST_F(PrefixFetchesTest, AnotherFetchFollowsOneThatBroughtAPart) {
  fetches_.Computed(1000, absl::Seconds(1));
  const std::optional<absl::Duration> wait = fetches_.Decide(kOne, Cached(0, 400), kStart);
  ASSERT_TRUE(wait.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*wait), 0.4, 1e-6);
  fetches_.Ordered(kOne, FetchOrdered(10, 25), kStart);
  fetches_.Heed(Ticket(10), kStart + milliseconds(50));
  fetches_.Probed(kOne, Cached(200), kStart + milliseconds(50));
  const std::optional<absl::Duration> left =
      fetches_.Decide(kOne, Cached(200, 400), kStart + milliseconds(50));
  ASSERT_TRUE(left.has_value());
  EXPECT_NEAR(absl::ToDoubleSeconds(*left), 0.35, 1e-6) << "of the time for all";
  fetches_.Ordered(kOne, FetchOrdered(20, 25), kStart + milliseconds(50));
  fetches_.Heed(Ticket(20), kStart + milliseconds(380));
  fetches_.Probed(kOne, Cached(300), kStart + milliseconds(380));
  EXPECT_FALSE(fetches_.Decide(kOne, Cached(300, 400), kStart + milliseconds(380)).has_value())
      << "the rest is not foretold to come in time";
  EXPECT_EQ(fetches_.counts().fetches, 2u);
  EXPECT_EQ(fetches_.counts().fetches_not_worth, 0u);
  EXPECT_EQ(fetches_.Leave(kOne), 300u);
}

// A sliding window gets its last blocks first.
TEST_F(PrefixFetchesTest, APartMayMatchNothing) {
  const auto cached = [](uint32_t matched, uint32_t on_disk) {
    return CachedPrefix{.matched_tokens = matched, .cached_tokens = 400, .disk_tokens = on_disk};
  };
  ASSERT_TRUE(fetches_.Decide(kOne, cached(0, 400), kStart).has_value());
  fetches_.Ordered(kOne, FetchOrdered(10, 25), kStart);
  fetches_.Heed(Ticket(10), kStart + milliseconds(10));
  fetches_.Probed(kOne, cached(0, 200), kStart + milliseconds(10));
  ASSERT_TRUE(fetches_.Decide(kOne, cached(0, 200), kStart + milliseconds(10)).has_value());
  fetches_.Ordered(kOne, FetchOrdered(20, 25), kStart + milliseconds(10));
  fetches_.Heed(Ticket(20), kStart + milliseconds(20));
  fetches_.Probed(kOne, cached(400, 0), kStart + milliseconds(20));
  EXPECT_FALSE(fetches_.Decide(kOne, cached(400, 0), kStart + milliseconds(20)).has_value());
  EXPECT_EQ(fetches_.counts().late_fetches, 0u);
}

TEST_F(PrefixFetchesTest, ALateOneIsTheLast) {
  fetches_.Computed(1000, absl::Seconds(1));
  Begin(kOne, 0, 100, 4, kStart);
  fetches_.Heed(Ticket(3), kStart + milliseconds(99));
  EXPECT_TRUE(fetches_.IsFetching(kOne));
  fetches_.Heed(Ticket(3), kStart + milliseconds(100));
  EXPECT_FALSE(fetches_.IsFetching(kOne));
  fetches_.Probed(kOne, Cached(24), kStart + milliseconds(101));
  EXPECT_EQ(fetches_.counts().late_fetches, 1u);
  EXPECT_FALSE(fetches_.Decide(kOne, Cached(24, 100), kStart + milliseconds(101)).has_value());
  EXPECT_FALSE(fetches_.WantsMatch(kOne));
  EXPECT_EQ(fetches_.Leave(kOne), 24u) << "what came so far";
  EXPECT_FALSE(fetches_.Decide(kTwo, Cached(0, 100), kStart + milliseconds(102)).has_value())
      << "100 tokens take 400 ms by fetch";
  EXPECT_EQ(fetches_.counts().fetches_not_worth, 1u);
}

TEST_F(PrefixFetchesTest, OneThatBroughtNothingIsTheLastOfAll) {
  Begin(kOne, 0, 100, 4, kStart);
  fetches_.Heed(Ticket(4), kStart + milliseconds(1));
  fetches_.Probed(kOne, Cached(7), kStart + milliseconds(1));
  EXPECT_FALSE(fetches_.Decide(kOne, Cached(7, 100), kStart + milliseconds(1)).has_value());
  EXPECT_FALSE(fetches_.Decide(kTwo, Cached(0, 100), kStart + milliseconds(1)).has_value());
  fetches_.Leave(kTwo);
  EXPECT_TRUE(fetches_.Decide(kTwo, Cached(0, 100), kStart + seconds(2)).has_value())
      << "for a while";
}

TEST_F(PrefixFetchesTest, ADiskThatHasStoppedIsLeftEarly) {
  fetches_.Computed(1000, absl::Seconds(20));
  Begin(kOne, 0, 1000, 100, kStart);
  for (int i = 1; i <= 8; ++i) {
    fetches_.Heed(Ticket(static_cast<uint64_t>(i)), kStart + seconds(i));
    ASSERT_TRUE(fetches_.IsFetching(kOne)) << "it comes, slowly";
  }
  fetches_.Heed(Ticket(8), kStart + milliseconds(9900));
  EXPECT_TRUE(fetches_.IsFetching(kOne));
  fetches_.Heed(Ticket(8), kStart + milliseconds(10000));
  EXPECT_FALSE(fetches_.IsFetching(kOne));
  fetches_.Probed(kOne, Cached(64), kStart + seconds(10));
  EXPECT_EQ(fetches_.counts().late_fetches, 1u);
}

// The engine can look late, after a long step, and the cache ends a fetch at its deadline.
TEST_F(PrefixFetchesTest, WhatItBroughtTellsWhetherItWasLate) {
  for (const uint32_t matched : {100u, 0u}) {
    Begin(kOne, 0, 103, 4, kStart);
    fetches_.Heed(Ticket(4), kStart + absl::ToChronoSeconds(FetchForecast::kFirstPatience));
    EXPECT_FALSE(fetches_.IsFetching(kOne));
    fetches_.Probed(kOne, Cached(matched), kStart + seconds(6));
    EXPECT_EQ(fetches_.counts().late_fetches, matched == 0 ? 1u : 0u);
    EXPECT_FALSE(fetches_.WantsMatch(kOne));
    EXPECT_EQ(fetches_.Leave(kOne), matched);
  }
}

TEST_F(PrefixFetchesTest, WaitsWithOthersForTheirFetches) {
  Begin(kOne, 0, 80, 5, kStart);
  Begin(kTwo, 0, 80, 5, kStart + milliseconds(1), 0);
  EXPECT_EQ(fetches_.counts().fetches, 1u);
  fetches_.Heed(Ticket(5), kStart + milliseconds(2));
  fetches_.Probed(kTwo, Cached(40), kStart + milliseconds(2));
  // Memory had no space for all of it at once.
  EXPECT_TRUE(fetches_.Decide(kTwo, Cached(40, 80), kStart + milliseconds(2)).has_value());
  fetches_.Ordered(kTwo, FetchOrdered(9, 5), kStart + milliseconds(2));
  fetches_.Heed(Ticket(9), kStart + milliseconds(3));
  fetches_.Probed(kTwo, Cached(80), kStart + milliseconds(3));
  EXPECT_EQ(fetches_.Leave(kTwo), 40u) << "its own";
}

TEST_F(PrefixFetchesTest, NothingIsWaitedForWhereNothingIsOnItsWay) {
  ASSERT_TRUE(fetches_.Decide(kOne, Cached(0, 80), kStart).has_value());
  fetches_.Ordered(kOne, FetchOrdered(0, 0), kStart);
  EXPECT_FALSE(fetches_.IsFetching(kOne));
  EXPECT_FALSE(fetches_.WantsMatch(kOne));
  ASSERT_TRUE(fetches_.Decide(kTwo, Cached(0, 80), kStart).has_value())
      << "the disk is not to blame";
  fetches_.Ordered(kTwo, MakeError(Reason::kFieldNotServed, "planted"), kStart);
  EXPECT_FALSE(fetches_.any_fetching());
  EXPECT_FALSE(fetches_.Decide({3, 0}, Cached(0, 80), kStart).has_value());
  EXPECT_EQ(fetches_.counts().fetches, 0u);
}

TEST_F(PrefixFetchesTest, AnotherSessionForgetsWhatWasOrdered) {
  Begin(kOne, 0, 80, 5, kStart);
  fetches_.Heed(Ticket(3), kStart);
  fetches_.Attach(Info(Medium::kDisk));
  EXPECT_FALSE(fetches_.any_fetching());
  EXPECT_EQ(fetches_.completed(), Ticket());
  Begin(kOne, 0, 80, 1, kStart);
  fetches_.Heed(Ticket(0), kStart + milliseconds(1));
  EXPECT_TRUE(fetches_.IsFetching(kOne));
}

TEST_F(PrefixFetchesTest, AnAnswerToOneThatHasEndedIsNobodys) {
  ASSERT_TRUE(fetches_.Decide(kOne, Cached(0, 80), kStart).has_value());
  fetches_.Leave(kOne);
  fetches_.Ordered(kOne, FetchOrdered(5, 4), kStart);
  EXPECT_FALSE(fetches_.any_fetching());
}

}  // namespace
}  // namespace pagoda
