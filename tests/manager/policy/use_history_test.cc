#include "manager/policy/use_history.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "manager/policy/evicted_content.h"

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
  constexpr uint32_t kSlots = 4'096;
  EvictedContent evicted(kSlots);
  const std::vector<BlockHash> hashes = Hashes(2, 8 * kSlots);
  for (const BlockHash hash : hashes) evicted.Remember(hash, 1);
  uint32_t young = 0;
  uint32_t old = 0;
  for (uint32_t i = 0; i < kSlots; ++i) {
    young += evicted.Take(hashes[hashes.size() - 1 - i]).has_value();
    old += evicted.Take(hashes[i]).has_value();
  }
  EXPECT_GT(young, kSlots * 95 / 100);
  EXPECT_LT(old, kSlots / 50) << "what was never there is found as seldom";
}

TEST(EvictedContentTest, TheAgeIsAboutHowManyLeftSince) {
  constexpr uint32_t kSlots = 4'096;
  EvictedContent evicted(kSlots);
  const std::vector<BlockHash> hashes = Hashes(3, kSlots);
  for (const BlockHash hash : hashes) evicted.Remember(hash, 0);
  uint64_t total = 0;
  uint32_t found = 0;
  for (uint32_t i = 0; i < 100; ++i) {  // The 100 oldest: kSlots left since.
    const std::optional<EvictedContent::Memory> memory = evicted.Take(hashes[i]);
    if (!memory.has_value()) continue;
    total += memory->age;
    ++found;
  }
  ASSERT_GT(found, 80u);
  EXPECT_NEAR(static_cast<double>(total) / found, kSlots, kSlots / 3.0);
}

// Of contents that never left.
template <class Notes>
int FalselyFound() {
  constexpr uint32_t kSlots = 1'000;
  Notes evicted(kSlots);
  std::mt19937_64 random(1);
  for (uint32_t i = 0; i < 4 * kSlots; ++i) evicted.Remember(BlockHash{random()}, i % 4);
  int found = 0;
  for (int i = 0; i < 200'000; ++i) {
    const BlockHash hash{random()};
    const auto memory = evicted.Take(hash);
    if (!memory.has_value()) continue;
    ++found;
    evicted.Remember(hash, memory->note);
  }
  return found;
}

TEST(EvictedContentTest, ShorterNotesFindFewerWrongContents) {
  EXPECT_NEAR(FalselyFound<EvictedNotes<4>>(), 200'000 * 8 / 4'095.0, 60);
  EXPECT_NEAR(FalselyFound<EvictedNotes<2>>(), 200'000 * 8 / 16'383.0, 30);
}

TEST(EvictedContentTest, NothingIsRememberedByTheEmptyHash) {
  EvictedContent evicted(1);
  evicted.Remember(BlockHash{}, 3);
  EXPECT_FALSE(evicted.Take(BlockHash{}).has_value());
}

constexpr SlotIndex kSlot{3};
constexpr BlockHash kContent{0x9D2C'5681'01F2'ABCDu};

TEST(UseHistoryTest, CountsMatchesAndForgetsThemWithTheBlock) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kSlot, BlockHash{}, 100);
  EXPECT_EQ(history.matches(kSlot), 0u);
  history.Touched(kSlot, 110);
  history.Touched(kSlot, 120);
  EXPECT_EQ(history.matches(kSlot), 2u);
  EXPECT_EQ(history.Age(kSlot, 125), 5u);
  history.Removed(kSlot, BlockHash{});
  history.Inserted(kSlot, BlockHash{}, 130);
  EXPECT_EQ(history.matches(kSlot), 0u) << "other content in the same slot";
  EXPECT_EQ(history.Age(kSlot, 130), 0u);
  for (int i = 0; i < 100; ++i) history.Touched(kSlot, 130);
  EXPECT_EQ(history.matches(kSlot), UseHistory::kMaxMatches);
}

TEST(UseHistoryTest, ContentThatComesBackWasMatchedOnceMore) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kSlot, kContent, 0);
  history.Touched(kSlot, 1);
  history.Removed(kSlot, kContent);
  const std::optional<EvictedContent::Memory> memory = history.Inserted(SlotIndex{7}, kContent, 2);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->note, 1u);
  EXPECT_EQ(history.matches(SlotIndex{7}), 2u);
}

TEST(UseHistoryTest, AMatchThatBringsContentUpIsOneUse) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kSlot, kContent, 0);
  history.Removed(kSlot, kContent);
  history.Inserted(kSlot, kContent, 1);
  history.Touched(kSlot, 1);
  EXPECT_EQ(history.matches(kSlot), 1u) << "inserted and touched by one match";
  history.Touched(kSlot, 2);
  EXPECT_EQ(history.matches(kSlot), 2u);

  history.Inserted(SlotIndex{4}, BlockHash{1}, 1);
  history.Touched(SlotIndex{4}, 1);
  EXPECT_EQ(history.matches(SlotIndex{4}), 1u) << "what was forgotten was matched all the same";
}

TEST(UseHistoryTest, ContentThatIsComputedAnewAndThenMatchedIsTwoUses) {
  UseTable table(10);
  UseHistory history(&table);
  history.Inserted(kSlot, kContent, 0);
  history.Removed(kSlot, kContent);
  history.Inserted(kSlot, kContent, 1);
  history.Released();
  history.Touched(kSlot, 2);
  EXPECT_EQ(history.matches(kSlot), 2u);

  history.Removed(kSlot, kContent);
  history.Inserted(kSlot, kContent, 3);
  history.Inserted(SlotIndex{4}, BlockHash{1}, 3);
  history.Touched(kSlot, 4);
  EXPECT_EQ(history.matches(kSlot), 4u);
}

// --- Several tenants ---

TEST(UseHistoryTest, WhatOneTenantCountsNoOtherSees) {
  UseTable table(10);
  UseHistory red(&table), blue(&table);
  red.Inserted(kSlot, kContent, 0);
  red.Touched(kSlot, 1);
  red.Removed(kSlot, kContent);
  // The slot belongs to another tenant now, which has another clock; its content's hash differs
  // too.
  EXPECT_FALSE(blue.Inserted(kSlot, BlockHash{1}, 1'000).has_value());
  EXPECT_EQ(blue.matches(kSlot), 0u);
  EXPECT_EQ(blue.Age(kSlot, 1'003), 3u);
  blue.Removed(kSlot, BlockHash{1});
  EXPECT_EQ(red.Inserted(SlotIndex{7}, kContent, 2)->note, 1u) << "the first one's is remembered";
}

TEST(UseHistoryTest, OnesReleaseIsNotTheOthersArrivals) {
  UseTable table(10);
  UseHistory red(&table), blue(&table);
  red.Inserted(kSlot, kContent, 0);
  red.Removed(kSlot, kContent);
  red.Inserted(kSlot, kContent, 1);
  blue.Released();
  EXPECT_TRUE(red.arrives(kSlot));
  EXPECT_FALSE(blue.arrives(kSlot));
}

// The matches found, for contents that left before 300 others of the same tenant, and `others`
// times as many of other tenants.
struct Found {
  uint32_t contents = 0;
  uint64_t mean_age = 0;
};
Found FindAmong(uint32_t others) {
  constexpr uint32_t kSlots = 4'096;
  UseTable table(kSlots);
  UseHistory own(&table), other(&table);
  const std::vector<BlockHash> hashes = Hashes(4, size_t{400} * (others + 1));
  for (size_t i = 0; i < hashes.size(); ++i) {
    (i % (others + 1) == 0 ? own : other).Removed(kSlot, hashes[i]);
  }
  Found found;
  uint64_t total = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    const std::optional<EvictedContent::Memory> memory =
        own.Inserted(kSlot, hashes[size_t{i} * (others + 1)], 0);
    if (!memory.has_value()) continue;
    ++found.contents;
    total += memory->age;
  }
  if (found.contents != 0) found.mean_age = total / found.contents;
  return found;
}

TEST(UseHistoryTest, TheAgeOfWhatLeftCountsTheTenantsOwn) {
  // About 3,200 have left since in all: only its own, or an eighth of them.
  EXPECT_GT(FindAmong(7).contents, 80u);
  EXPECT_NEAR(static_cast<double>(FindAmong(7).mean_age), 350, 150);
}

TEST(UseHistoryTest, TheAgeFollowsWhoseContentsLeaveNow) {
  constexpr uint32_t kSlots = 4'096;
  constexpr uint32_t kOfOthers = 100'000;
  UseTable table(kSlots);
  UseHistory own(&table), other(&table);
  for (const BlockHash hash : Hashes(5, kOfOthers)) other.Removed(kSlot, hash);
  // Now the other tenant stops, and only this tenant's content leaves.
  const std::vector<BlockHash> hashes = Hashes(6, 2'000);
  for (const BlockHash hash : hashes) own.Removed(kSlot, hash);
  const std::optional<EvictedContent::Memory> memory = own.Inserted(kSlot, hashes[0], 0);
  ASSERT_TRUE(memory.has_value());
  EXPECT_NEAR(static_cast<double>(memory->age), 2'000, 800);
  // The other tenant's last content comes back: none of its own content has left since.
  const BlockHash last = Hashes(5, kOfOthers).back();
  const std::optional<EvictedContent::Memory> late = other.Inserted(kSlot, last, 0);
  ASSERT_TRUE(late.has_value());
  EXPECT_LT(late->age, 800u);
}

TEST(UseHistoryTest, TenantsShareTheSpaceForEvictedContent) {
  // 40,000 contents have left since; the last 8,192 of them are remembered.
  EXPECT_LT(FindAmong(99).contents, 5u);
}

}  // namespace
}  // namespace pagoda
