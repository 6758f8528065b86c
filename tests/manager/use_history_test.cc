#include "manager/use_history.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "manager/evicted_content.h"

namespace pagoda {
namespace {

std::vector<BlockHash> Hashes(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<BlockHash> hashes;
  for (size_t i = 0; i < count; ++i) hashes.emplace_back(random());
  return hashes;
}

TEST(EvictedContentTest, GivesBackTheNoteOnce) {
  EvictedContent evicted(100);
  const std::vector<BlockHash> hashes = Hashes(1, 2);
  evicted.Remember(hashes[0], 15);
  evicted.Remember(hashes[1], 0);
  ASSERT_TRUE(evicted.Take(hashes[0]).has_value());
  EXPECT_FALSE(evicted.Take(hashes[0]).has_value());
  ASSERT_TRUE(evicted.Take(hashes[1]).has_value());
  evicted.Remember(hashes[0], 7);
  EXPECT_EQ(evicted.Take(hashes[0])->note, 7u);
}

TEST(EvictedContentTest, RemembersTheLastThatLeftAndNotTheFirst) {
  constexpr uint32_t kIds = 4'096;
  EvictedContent evicted(kIds);
  const std::vector<BlockHash> hashes = Hashes(2, 8 * kIds);
  for (const BlockHash hash : hashes) evicted.Remember(hash, 1);
  uint32_t young = 0;
  uint32_t old = 0;
  for (uint32_t i = 0; i < kIds; ++i) {
    young += evicted.Take(hashes[hashes.size() - 1 - i]).has_value();
    old += evicted.Take(hashes[i]).has_value();
  }
  EXPECT_GT(young, kIds * 95 / 100);
  EXPECT_LT(old, kIds / 50) << "what was never there is found as seldom";
}

TEST(EvictedContentTest, TheAgeIsAboutHowManyLeftSince) {
  constexpr uint32_t kIds = 4'096;
  EvictedContent evicted(kIds);
  const std::vector<BlockHash> hashes = Hashes(3, kIds);
  for (const BlockHash hash : hashes) evicted.Remember(hash, 0);
  uint64_t total = 0;
  uint32_t found = 0;
  for (uint32_t i = 0; i < 100; ++i) {  // The 100 oldest: kIds left since.
    const std::optional<EvictedContent::Memory> memory = evicted.Take(hashes[i]);
    if (!memory.has_value()) continue;
    total += memory->age;
    ++found;
  }
  ASSERT_GT(found, 80u);
  EXPECT_NEAR(static_cast<double>(total / found), kIds, kIds / 3);
}

TEST(EvictedContentTest, NothingIsRememberedByTheEmptyHash) {
  EvictedContent evicted(1);
  evicted.Remember(BlockHash{}, 3);
  EXPECT_FALSE(evicted.Take(BlockHash{}).has_value());
}

constexpr BlockId kBlock{3};
constexpr BlockHash kContent{0x9D2C'5681'01F2'ABCDu};

TEST(UseHistoryTest, CountsMatchesAndForgetsThemWithTheBlock) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kBlock, BlockHash{}, 100);
  EXPECT_EQ(history.matches(kBlock), 0u);
  history.Touched(kBlock, 110);
  history.Touched(kBlock, 120);
  EXPECT_EQ(history.matches(kBlock), 2u);
  EXPECT_EQ(history.Age(kBlock, 125), 5u);
  history.Removed(kBlock, BlockHash{});
  history.Inserted(kBlock, BlockHash{}, 130);
  EXPECT_EQ(history.matches(kBlock), 0u) << "other content under the same id";
  EXPECT_EQ(history.Age(kBlock, 130), 0u);
  for (int i = 0; i < 100; ++i) history.Touched(kBlock, 130);
  EXPECT_EQ(history.matches(kBlock), UseHistory::kMaxMatches);
}

TEST(UseHistoryTest, ContentThatComesBackWasMatchedOnceMore) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kBlock, kContent, 0);
  history.Touched(kBlock, 1);
  history.Removed(kBlock, kContent);
  const std::optional<EvictedContent::Memory> memory = history.Inserted(BlockId{7}, kContent, 2);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->note, 1u);
  EXPECT_EQ(history.matches(BlockId{7}), 2u);
}

TEST(UseHistoryTest, AMatchThatBringsContentUpIsOneUse) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kBlock, kContent, 0);
  history.Removed(kBlock, kContent);
  history.Inserted(kBlock, kContent, 1);
  history.Touched(kBlock, 1);
  EXPECT_EQ(history.matches(kBlock), 1u) << "inserted and touched by one match";
  history.Touched(kBlock, 2);
  EXPECT_EQ(history.matches(kBlock), 2u);

  history.Inserted(BlockId{4}, BlockHash{1}, 1);
  history.Touched(BlockId{4}, 1);
  EXPECT_EQ(history.matches(BlockId{4}), 1u) << "what was forgotten was matched all the same";
}

TEST(UseHistoryTest, ContentThatIsComputedAnewAndThenMatchedIsTwoUses) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kBlock, kContent, 0);
  history.Removed(kBlock, kContent);
  history.Inserted(kBlock, kContent, 1);
  history.Released();
  history.Touched(kBlock, 2);
  EXPECT_EQ(history.matches(kBlock), 2u);

  history.Removed(kBlock, kContent);
  history.Inserted(kBlock, kContent, 3);
  history.Inserted(BlockId{4}, BlockHash{1}, 3);
  history.Touched(kBlock, 4);
  EXPECT_EQ(history.matches(kBlock), 4u);
}

// --- Several tenants ---

TEST(UseHistoryTest, WhatOneTenantCountsNoOtherSees) {
  UseTable table(10);
  UseHistory red(&table), blue(&table);
  red.Inserted(kBlock, kContent, 0);
  red.Touched(kBlock, 1);
  red.Removed(kBlock, kContent);
  // The id is another tenant's now, whose clock is another; its content's hash is another too.
  EXPECT_FALSE(blue.Inserted(kBlock, BlockHash{1}, 1'000).has_value());
  EXPECT_EQ(blue.matches(kBlock), 0u);
  EXPECT_EQ(blue.Age(kBlock, 1'003), 3u);
  blue.Removed(kBlock, BlockHash{1});
  EXPECT_EQ(red.Inserted(BlockId{7}, kContent, 2)->note, 1u) << "the first one's is remembered";
}

TEST(UseHistoryTest, OnesReleaseIsNotTheOthersArrivals) {
  UseTable table(10);
  UseHistory red(&table), blue(&table);
  red.Inserted(kBlock, kContent, 0);
  red.Removed(kBlock, kContent);
  red.Inserted(kBlock, kContent, 1);
  blue.Released();
  EXPECT_TRUE(red.arrives(kBlock));
  EXPECT_FALSE(blue.arrives(kBlock));
}

// What was found, of contents that left before 300 others of the tenant's own, and `others` times
// as many of other tenants.
struct Found {
  uint32_t contents = 0;
  uint64_t mean_age = 0;
};
Found FindAmong(uint32_t others) {
  constexpr uint32_t kIds = 4'096;
  UseTable table(kIds);
  UseHistory own(&table), other(&table);
  const std::vector<BlockHash> hashes = Hashes(4, size_t{400} * (others + 1));
  for (size_t i = 0; i < hashes.size(); ++i) {
    (i % (others + 1) == 0 ? own : other).Removed(kBlock, hashes[i]);
  }
  Found found;
  uint64_t total = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    const std::optional<EvictedContent::Memory> memory =
        own.Inserted(kBlock, hashes[size_t{i} * (others + 1)], 0);
    if (!memory.has_value()) continue;
    ++found.contents;
    total += memory->age;
  }
  if (found.contents != 0) found.mean_age = total / found.contents;
  return found;
}

TEST(UseHistoryTest, TheAgeOfWhatLeftCountsTheTenantsOwn) {
  // About 3,200 left since in all: its own alone, or an eighth of them.
  EXPECT_GT(FindAmong(7).contents, 80u);
  EXPECT_NEAR(static_cast<double>(FindAmong(7).mean_age), 350, 150);
}

TEST(UseHistoryTest, TheAgeFollowsWhoseContentsLeaveNow) {
  constexpr uint32_t kIds = 4'096;
  constexpr uint32_t kOfOthers = 100'000;
  UseTable table(kIds);
  UseHistory own(&table), other(&table);
  for (const BlockHash hash : Hashes(5, kOfOthers)) other.Removed(kBlock, hash);
  // Now the other one stops, and all that leaves is this one's.
  const std::vector<BlockHash> hashes = Hashes(6, 2'000);
  for (const BlockHash hash : hashes) own.Removed(kBlock, hash);
  const std::optional<EvictedContent::Memory> memory = own.Inserted(kBlock, hashes[0], 0);
  ASSERT_TRUE(memory.has_value());
  EXPECT_NEAR(static_cast<double>(memory->age), 2'000, 800);
  // The other one comes back: none of its own left since.
  const BlockHash last = Hashes(5, kOfOthers).back();
  const std::optional<EvictedContent::Memory> late = other.Inserted(kBlock, last, 0);
  ASSERT_TRUE(late.has_value());
  EXPECT_LT(late->age, 800u);
}

TEST(UseHistoryTest, TenantsShareTheRoomForWhatLeft) {
  // Of 40,000 that left since, the last 8,192 are remembered.
  EXPECT_LT(FindAmong(99).contents, 5u);
}

}  // namespace
}  // namespace pagoda
