#include "manager/policy/evicted_content.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

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
  evicted.Remember(hashes[0], 3);
  evicted.Remember(hashes[1], 0);
  ASSERT_TRUE(evicted.Take(hashes[0]).has_value());
  EXPECT_FALSE(evicted.Take(hashes[0]).has_value());
  ASSERT_TRUE(evicted.Take(hashes[1]).has_value());
  evicted.Remember(hashes[0], 2);
  EXPECT_EQ(evicted.Take(hashes[0]), 2u);
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

TEST(EvictedContentTest, AboutOneLookUpIn2000FindsContentThatNeverLeft) {
  constexpr uint32_t kSlots = 1'000;
  EvictedContent evicted(kSlots);
  std::mt19937_64 random(1);
  for (uint32_t i = 0; i < 4 * kSlots; ++i) evicted.Remember(BlockHash{random()}, i % 4);
  int found = 0;
  for (int i = 0; i < 200'000; ++i) {
    const BlockHash hash{random()};
    const auto note = evicted.Take(hash);
    if (!note.has_value()) continue;
    ++found;
    evicted.Remember(hash, *note);
  }
  EXPECT_NEAR(found, 200'000 * 8 / 16'383.0, 30);
}

TEST(EvictedContentTest, NothingIsRememberedByTheEmptyHash) {
  EvictedContent evicted(1);
  evicted.Remember(BlockHash{}, 3);
  EXPECT_FALSE(evicted.Take(BlockHash{}).has_value());
}

}  // namespace
}  // namespace pagoda
