#include "base/fair_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pagoda {
namespace {

TEST(FairCountTest, AloneAPartyGetsAllButTheOthersParts) {
  FairCount count(100, 5);
  size_t taken = 0;
  while (count.Add(0)) ++taken;
  EXPECT_EQ(taken, 60u);
  EXPECT_EQ(count.total(), 60u);
}

TEST(FairCountTest, APartyGetsItsPartWhateverTheOthersHave) {
  FairCount count(100, 5);
  while (count.Add(0)) {
  }
  for (size_t party = 1; party < 5; ++party) {
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(count.Add(party)) << party;
    EXPECT_FALSE(count.Add(party)) << party;
  }
  EXPECT_EQ(count.total(), 100u);
}

TEST(FairCountTest, OnePartyAloneInTheWorldGetsAll) {
  FairCount count(7, 1);
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(count.Add(0));
  EXPECT_FALSE(count.Add(0));
}

TEST(FairCountTest, APartyThatHasNothingGetsOneWhileThereIsRoom) {
  for (const size_t most : {1u, 2u, 16u, 64u, 65u}) {
    for (const size_t parties : {most / 2 + 1, most, 10 * most}) {
      FairCount count(most, parties);
      while (count.Add(0)) {
      }
      EXPECT_EQ(count.of(0), most - most / 2 + (most > 1 ? 1 : 0));
      EXPECT_EQ(count.of(0), count.most_of_one());
      size_t served = 1;
      for (size_t party = 1; party < parties; ++party) served += count.Add(party) ? 1 : 0;
      EXPECT_EQ(count.total(), most) << most << " for " << parties;
      EXPECT_EQ(served, std::min(parties, 1 + most - count.of(0)));
      count.Remove(0);
      EXPECT_EQ(count.left(parties - 1), 1u);
    }
  }
}

TEST(FairCountTest, ManyAreTakenAllOrNothing) {
  FairCount count(100, 5);
  EXPECT_EQ(count.most_of_one(), 60u);
  EXPECT_EQ(count.left(0), 60u);
  EXPECT_FALSE(count.Add(0, 61));
  EXPECT_EQ(count.total(), 0u);
  EXPECT_TRUE(count.Add(0, 45));
  EXPECT_EQ(count.left(0), 15u);
  EXPECT_EQ(count.left(1), 25u) << "its part, and what is left of the common half";
  EXPECT_FALSE(count.Add(1, 26));
  EXPECT_TRUE(count.Add(1, 25));
  EXPECT_EQ(count.left(0), 0u);
  EXPECT_EQ(count.left(2), 10u);
  count.Remove(0, 40);
  EXPECT_EQ(count.of(0), 5u);
  EXPECT_EQ(count.left(2), 45u);
}

TEST(FairCountTest, RandomTakingAndGivingKeepsTheBoundsAndTheParts) {
  constexpr size_t kMost = 40, kParties = 3, kPart = kMost / 2 / kParties;
  std::mt19937 random(1);
  FairCount count(kMost, kParties);
  std::vector<size_t> model(kParties);
  for (int i = 0; i < 100'000; ++i) {
    const size_t party = random() % kParties;
    if (random() % 2 == 0 && model[party] > 0) {
      count.Remove(party);
      --model[party];
    } else {
      size_t beyond = 0;
      for (const size_t taken : model) beyond += taken > kPart ? taken - kPart : 0;
      const bool may = model[party] < kPart || beyond < kMost - kPart * kParties;
      ASSERT_EQ(count.Add(party), may);
      model[party] += may ? 1 : 0;
    }
    ASSERT_EQ(count.of(party), model[party]);
    ASSERT_EQ(count.total(), model[0] + model[1] + model[2]);
    ASSERT_LE(count.total(), kMost);
  }
}

TEST(FairCountTest, RandomTakingByMorePartiesThanPartsKeepsRoomForFirstPlaces) {
  constexpr size_t kMost = 10, kParties = 8, kReserved = kMost / 2;
  std::mt19937 random(1);
  FairCount count(kMost, kParties);
  std::vector<size_t> model(kParties);
  for (int i = 0; i < 100'000; ++i) {
    const size_t party = random() % kParties;
    if (random() % 2 == 0 && model[party] > 0) {
      count.Remove(party);
      --model[party];
    } else {
      size_t first = 0, total = 0;
      for (const size_t taken : model) {
        first += std::min<size_t>(taken, 1);
        total += taken;
      }
      // What no first place has of the reserved half is kept for the first places of others.
      const size_t kept = model[party] == 0 ? 0 : kReserved - std::min(kReserved, first);
      const bool may = total + kept < kMost;
      ASSERT_EQ(count.Add(party), may);
      model[party] += may ? 1 : 0;
    }
    ASSERT_EQ(count.of(party), model[party]);
    ASSERT_LE(count.total(), kMost);
  }
}

TEST(FairCountTest, AnOverdraftTakesNothingOfTheOthersParts) {
  FairCount count(100, 5);
  count.Overdraw(0, 150);
  EXPECT_EQ(count.left(0), 0u);
  EXPECT_EQ(count.total(), 150u);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(count.Add(1));
  EXPECT_FALSE(count.Add(1)) << "the common half is overdrawn";
  count.Remove(0, 100);
  EXPECT_EQ(count.left(0), 10u);
  EXPECT_TRUE(count.Add(1));
}

}  // namespace
}  // namespace pagoda
