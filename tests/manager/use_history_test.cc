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
  UseHistory history(10);
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
  UseHistory history(10);
  history.Inserted(kBlock, kContent, 0);
  history.Touched(kBlock, 1);
  history.Removed(kBlock, kContent);
  const std::optional<EvictedContent::Memory> memory = history.Inserted(BlockId{7}, kContent, 2);
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->note, 1u);
  EXPECT_EQ(history.matches(BlockId{7}), 2u);
}

TEST(UseHistoryTest, AMatchThatBringsContentUpIsOneUse) {
  UseHistory history(10);
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
  UseHistory history(10);
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

}  // namespace
}  // namespace pagoda
